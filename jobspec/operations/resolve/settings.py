"""Defaults of options that a user sets once: in the environment, or below that in the configuration file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jobctl.jobspec.operations.errors import InvalidConfig, Refused
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.spec.user_config import ConfiguredNotify, UserConfig

# By the key of the configuration file: the variable that counts more, and the option that counts most.
VARIABLES = {"hosts": "JOBCTL_HOSTS", "ssh_config": "JOBCTL_SSH_CONFIG"}
OPTIONS = {"hosts": "--hosts", "ssh_config": "--ssh-config"}


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that counts where no option says otherwise. `place` is the variable, or file and line; None for jobctl's own default."""

    value: Path | None
    origin: Literal["environment", "config", "default"]
    place: str | None = None


def has_defaults(environ: Mapping[str, str]) -> bool:
    """Say whether the user has set any default at all; nothing is read for that."""
    from jobctl.jobspec.spec.user_config import config_path

    return any(map(environ.get, VARIABLES.values())) or os.path.lexists(config_path(environ))


def default_hosts() -> Setting:
    """Return the hosts file that counts for jobs that are not known here. Raises Refused if there is no such file."""
    return _existing("hosts")


def default_ssh_config() -> Path | None:
    """Return the SSH configuration that counts where none was given. Raises Refused if there is no such file."""
    return _existing("ssh_config").value


def _existing(key: str) -> Setting:
    found = setting(key, os.environ)
    if found.value is not None and not found.value.is_file():
        hint = f"correct it there, or name another with `{OPTIONS[key]}`; `jobctl config` shows all defaults"
        raise Refused(f"{found.place}: there is no file {found.value}", hint)
    return found


def setting(key: str, environ: Mapping[str, str]) -> Setting:
    """Return a default: of the environment, then of the configuration file. Raises InvalidConfig for a file with errors."""
    variable = VARIABLES[key]
    if environ.get(variable):
        return Setting(Path(os.path.expanduser(environ[variable])).absolute(), "environment", variable)
    config = read_config(environ)
    configured = config.values.get(key) if config else None
    if config is None or configured is None:
        return Setting(None, "default")
    return Setting(configured.path, "config", f"{config.path}:{configured.line}")


def read_config(environ: Mapping[str, str]) -> UserConfig | None:
    """Return the configuration file, None if there is none. Raises InvalidConfig for one with errors."""
    from jobctl.jobspec.spec.user_config import config_path, load_user_config

    path = config_path(environ)
    if not os.path.lexists(path):
        return None
    config = load_user_config(path)
    if config.diagnostics:
        raise InvalidConfig(config.diagnostics, config.source)
    return config


@dataclass(frozen=True, slots=True)
class Settings:
    """All defaults, and the configuration file that some of them may come from."""

    path: Path
    exists: bool
    values: Mapping[str, Setting]
    notify: ConfiguredNotify | None = None


def all_settings(environ: Mapping[str, str]) -> Settings:
    """Return all defaults, whether their files are there or not. Raises InvalidConfig for a configuration with errors."""
    from jobctl.jobspec.deploy.store.jobdir import state_dir
    from jobctl.jobspec.spec.user_config import config_path

    config = read_config(environ)
    values = {key: setting(key, environ) for key in VARIABLES}
    state, xdg = (environ.get(name, "") for name in ("JOBCTL_STATE_DIR", "XDG_STATE_HOME"))
    variable = "JOBCTL_STATE_DIR" if state else "XDG_STATE_HOME" if os.path.isabs(xdg) else None
    values["state_dir"] = Setting(state_dir(environ), "environment" if variable else "default", variable)
    return Settings(config_path(environ), config is not None, values, config.notify if config else None)
