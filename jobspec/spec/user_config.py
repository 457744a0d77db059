"""The user's configuration file: defaults of options, for all jobs on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.diagnostics import Diagnostic, closest, in_order
from jobctl.jobspec.spec.reading.source import BadSource, Source, YamlNode, read_text
from jobctl.jobspec.spec.user_folders import user_folder

if TYPE_CHECKING:
    from jobctl.jobspec.spec.parts.notify import Notify

# Each names a file; a relative one is beside the configuration file.
PATHS = ("hosts", "ssh_config")
NOTIFY = "notify"  # as in a spec
KEYS = (*PATHS, NOTIFY)


@dataclass(frozen=True, slots=True)
class ConfiguredPath:
    """A file that the configuration names, and the line that does so."""

    path: Path
    line: int


@dataclass(frozen=True, slots=True)
class ConfiguredNotify:
    """`notify` for all jobs whose spec has none, and the line that says it."""

    items: tuple[Notify, ...]
    line: int


@dataclass(frozen=True, slots=True)
class UserConfig:
    """What became of the configuration file; it has no values where it is not there, or where something is wrong with it."""

    path: Path
    source: Source
    values: Mapping[str, ConfiguredPath] = field(default_factory=dict)
    notify: ConfiguredNotify | None = None
    diagnostics: tuple[Diagnostic, ...] = ()


def config_path(environ: Mapping[str, str]) -> Path:
    """Return where the configuration file is or would be: `$XDG_CONFIG_HOME/jobctl/config.yaml`, default `~/.config`."""
    return user_folder(environ, "XDG_CONFIG_HOME", ".config") / "jobctl" / "config.yaml"


def load_user_config(path: Path) -> UserConfig:
    """Load the configuration file `path`; never raises for what is wrong with it."""
    file = str(path)
    if not os.path.lexists(path):
        return UserConfig(path, Source(file, "", None))
    from jobctl.jobspec.spec.reading.yaml_reader import parse

    text = ""
    try:
        text = read_text(path, file)
        root, found = parse(text, file)
        source = Source(file, text, root)
        values, more = _values(root, path.parent)
    except BadSource as bad:
        return UserConfig(path, Source(file, text, None), diagnostics=in_order(bad.diagnostics))
    notify, wrong = _notify(source)
    diagnostics = in_order([*found, *more, *wrong])
    if diagnostics:
        return UserConfig(path, source, diagnostics=diagnostics)
    return UserConfig(path, source, values, notify)


def _notify(source: Source) -> tuple[ConfiguredNotify | None, list[Diagnostic]]:
    """Return what `notify` says, and what is wrong with it; nothing heavy is imported for a file without it."""
    entry = source.root.get(NOTIFY) if source.root is not None and source.root.kind == "mapping" else None
    if entry is None:
        return None, []
    from pydantic import TypeAdapter, ValidationError

    from jobctl.jobspec.spec.parts.notify import Notify
    from jobctl.jobspec.spec.reading.problems import describe

    try:
        items = TypeAdapter(tuple[Notify, ...]).validate_python(entry[1].data())
    except ValidationError as error:
        return None, [describe(source, (NOTIFY, *one["loc"]), one) for one in error.errors(include_url=False)]
    return ConfiguredNotify(items, entry[0].span.line), []


def _values(root: YamlNode | None, folder: Path) -> tuple[dict[str, ConfiguredPath], list[Diagnostic]]:
    values: dict[str, ConfiguredPath] = {}
    found: list[Diagnostic] = []
    if root is None or root.data() is None:
        return values, found
    if root.kind != "mapping":
        example = "begin with `hosts: /path/hosts.txt`"
        raise BadSource(
            Diagnostic("error", "wrong-type", "a configuration is a mapping of keys to values", root.span, example)
        )
    for key, value in root.entries:
        if key.text.startswith("x-"):
            continue
        if key.text not in KEYS:
            hint = closest(key.text, KEYS) or f"known keys: {', '.join(KEYS)}"
            found.append(Diagnostic("error", "unknown-key", f"unknown key `{key.text}`", key.span, hint))
        elif key.text == NOTIFY:
            continue
        elif value.kind != "scalar" or not value.data():
            message = f"`{key.text}` is the path of a file"
            hint = f"write it as `{key.text}: /path/of/it`; leave the line out for no default"
            found.append(Diagnostic("error", "wrong-type", message, value.span if value.text else key.span, hint))
        else:
            path = Path(os.path.expanduser(value.text))
            values[key.text] = ConfiguredPath(Path(os.path.abspath(folder / path)), key.span.line)
    return values, found
