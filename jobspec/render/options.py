"""Options of `docker run` (`container.options` of the spec) as keys of a compose service.

A script passes them on as they are. Compose has no such escape hatch, so the common ones are translated, and the
others are refused with the way to say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TypeAlias

from jobctl.jobspec.render.errors import RenderError

Scalar: TypeAlias = str | int | bool
Keys: TypeAlias = dict[str, Scalar | tuple[str, ...]]

CODE = "option-not-in-compose"


def _size(value: str) -> str | int:
    """Return a size as Compose reads it: -1 (no limit) only as a number, as no text of a size has a sign."""
    return -1 if value == "-1" else value


# Options with one value (the last one holds): the service's key, and the type of the value.
_SINGLE: dict[str, tuple[str, Callable[[str], Scalar]]] = {
    "--cgroup-parent": ("cgroup_parent", str),
    "--cgroupns": ("cgroup", str),
    "--cpu-period": ("cpu_period", int),
    "--cpu-quota": ("cpu_quota", int),
    "--cpu-shares": ("cpu_shares", int),
    "--cpuset-cpus": ("cpuset", str),
    "--domainname": ("domainname", str),
    "--ipc": ("ipc", str),
    "--isolation": ("isolation", str),
    "--memory-reservation": ("mem_reservation", str),
    "--memory-swap": ("memswap_limit", _size),
    "--memory-swappiness": ("mem_swappiness", int),
    "--oom-score-adj": ("oom_score_adj", int),
    "--pid": ("pid", str),
    "--pids-limit": ("pids_limit", int),
    "--platform": ("platform", str),
    "--stop-signal": ("stop_signal", str),
    "--userns": ("userns_mode", str),
    "--uts": ("uts", str),
}

_FLAGS = {
    "--oom-kill-disable": "oom_kill_disable",
    "--privileged": "privileged",
    "--read-only": "read_only",
}

# Options that add up. The Compose Specification allows no item of such a list twice.
_LISTS = {
    "--add-host": "extra_hosts",
    "--annotation": "annotations",
    "--cap-drop": "cap_drop",
    "--device-cgroup-rule": "device_cgroup_rules",
    "--dns": "dns",
    "--dns-option": "dns_opt",
    "--dns-search": "dns_search",
    "--group-add": "group_add",
    "--security-opt": "security_opt",
    "--sysctl": "sysctls",
    "--tmpfs": "tmpfs",
}

# Options with a key of their own in the spec.
_SPEC_KEYS = {
    "--cap-add": "container.cap_add",
    "--cpus": "resources.cpus",
    "--device": "container.devices",
    "--env": "env",
    "-e": "env",
    "--env-file": "env_file",
    "--gpus": "devices",
    "--memory": "resources.memory",
    "-m": "resources.memory",
    "--mount": "volumes",
    "--pull": "pull",
    "--runtime": "container.runtime",
    "--shm-size": "resources.shm_size",
    "--stop-timeout": "stop_grace_period",
    "--ulimit": "resources.ulimits",
    "--user": "container.user",
    "-u": "container.user",
    "--volume": "volumes",
    "-v": "volumes",
    "--workdir": "code.target",
    "-w": "code.target",
}


@lru_cache(maxsize=64)
def service_keys(options: tuple[str, ...]) -> Keys:
    """Return `options` as keys of a service, in order of their names. Raises RenderError for what has none."""
    keys: Keys = {}
    for name, value in _pairs(options):
        if name in _FLAGS:
            keys[_FLAGS[name]] = value.lower() not in ("false", "f", "0")
        elif name in _LISTS:
            before = keys.get(_LISTS[name], ())
            keys[_LISTS[name]] = tuple(dict.fromkeys((*(before if isinstance(before, tuple) else ()), value)))
        else:
            keys[_SINGLE[name][0]] = _typed(name, value)
    return dict(sorted(keys.items()))


def _pairs(options: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Split `options` into names and values: `--ipc=host` and `--ipc`, `host` alike; a flag's default is `true`."""
    words = iter(options)
    for word in words:
        name, equals, value = word.partition("=")
        if name in _FLAGS:
            yield name, value if equals else "true"
        elif name in _SINGLE or name in _LISTS:
            yield name, value if equals else _next(words, name)
        else:
            raise _unknown(name)


def _next(words: Iterator[str], name: str) -> str:
    value = next(words, None)
    if value is None:
        raise RenderError(CODE, f"`container.options`: `{name}` needs a value")
    return value


def _typed(name: str, value: str) -> Scalar:
    try:
        return _SINGLE[name][1](value)
    except ValueError:
        raise RenderError(CODE, f"`container.options`: `{name}` needs a number, not `{value}`") from None


def _unknown(name: str) -> RenderError:
    key = _SPEC_KEYS.get(name)
    hint = f"use the spec's `{key}`" if key else "use `--target ssh`, which passes it to `docker run` as it is"
    return RenderError(CODE, f"`container.options`: `{name}` cannot be said in a compose file", hint)
