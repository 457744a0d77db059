"""Short forms become long forms here, once: later code sees one shape.

Each function takes what the YAML says (text, lists and mappings of text) and returns the long form, still as text;
what is no short form is handed on for the model to judge.
"""

from __future__ import annotations

import re
from typing import Any

from jobctl.jobspec.spec.names import ENV_NAME
from jobctl.jobspec.spec.scalars import MOST_NODES, bad, duration_value, expected, kind_of

__all__ = [
    "build",
    "checkpoint",
    "code",
    "dataset",
    "devices",
    "email",
    "hang_timeout",
    "nodes",
    "secret_name",
    "secrets",
    "standby",
    "ulimit",
    "volume",
    "words",
]
_VARIABLE = re.compile(ENV_NAME)
_WORD = re.compile(r"[A-Za-z0-9_ -]*")  # what may have been meant as a name


def nodes(value: Any) -> Any:
    """`4` and `2:4` → {min, max}."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"min": value, "max": value}
    if not isinstance(value, str | None):
        return value
    match = re.fullmatch(r"([0-9]{1,9})(?::([0-9]{1,9}))?", value or "")
    if match is None:
        raise expected("a number of nodes or a range", value, 'write `4`, or `"2:4"` for an elastic job')
    if not int(match[1]):
        raise bad("out-of-range", f"`nodes` must be at least 1, not {value}")
    if max(int(part) for part in match.groups() if part) > MOST_NODES:
        raise bad("out-of-range", f"`nodes` must be at most {MOST_NODES}, not {value}")
    return {"min": int(match[1]), "max": int(match[2] or match[1])}


def devices(value: Any) -> Any:
    """`gpu` and `gpu:8` → {kind, count}."""
    if not isinstance(value, str):
        return value
    kind, colon, count = value.partition(":")
    return {"kind": kind, "count": count} if colon else {"kind": kind}


def checkpoint(value: Any) -> Any:
    """`/path` → {dir}."""
    return {"dir": value} if isinstance(value, str) else value


def code(value: Any) -> Any:
    """`.` → {source}."""
    return {"source": value} if isinstance(value, str) else value


def build(value: Any) -> Any:
    """`.` → {context}; `args` as a list, `[NAME=VALUE, NAME]`, → a mapping."""
    if isinstance(value, str):
        return {"context": value}
    if not isinstance(value, dict) or not isinstance(value.get("args"), list):
        return value
    pairs = [item.partition("=") if isinstance(item, str) else (item, "", "") for item in value["args"]]
    for name, _, _ in pairs:
        if not isinstance(name, str):
            raise expected("`NAME=VALUE`", name, "or write a mapping: `args: {NAME: VALUE}`")
    return {**value, "args": {name: text if sign else None for name, sign, text in pairs}}


def dataset(value: Any) -> Any:
    """`SOURCE:TARGET` → {source, target}."""
    if not isinstance(value, str):
        return value
    source, _, target = value.rpartition(":")
    if not source or not target:
        raise expected("`SOURCE:TARGET`", value, "the folder, and its path in the container")
    return {"source": source, "target": target}


def data_hosts(value: Any) -> Any:
    """`all` → no names, which means the same; one text → a list of it."""
    if value in ("all", ["all"]):
        return ()
    if value == []:
        raise bad("data-hosts", "no host gets this data", "name hosts, or leave `hosts` out: then all get it")
    return words(value)


def words(value: Any) -> Any:
    """One text → a list of it."""
    return [value] if isinstance(value, str) else value


def ulimit(value: Any) -> Any:
    """`65535` → {soft, hard}."""
    return {"soft": value, "hard": value} if isinstance(value, str | int) else value


def hang_timeout(value: Any) -> Any:
    """`off` → None, `auto` → 0, a duration → seconds."""
    if value is None or value == "off":
        return None
    seconds = 0.0 if value == "auto" else duration_value(value)
    if seconds == 0 and value != "auto":
        raise bad("out-of-range", "`recovery.hang_timeout` must be more than nothing", "write `off`, or leave it out")
    return seconds


def standby(value: Any) -> Any:
    """`off` → None; `auto`, and nothing after the key → {}, the default."""
    if value == "off":
        return None
    if value is None or value == "auto":
        return {}
    if isinstance(value, str):
        raise expected("`auto`, `off` or `{import: [MODULE, …]}`", value)
    return value


def volume(value: Any) -> Any:
    """`source:target[:ro]` → {type, source, target, read_only}; a bare name is a volume, a path is a bind."""
    if not isinstance(value, str):
        return value
    parts = value.split(":")
    if not 2 <= len(parts) <= 3 or not all(parts):
        raise expected("`SOURCE:TARGET` or `SOURCE:TARGET:ro`", value, "or write it in the long form")
    if parts[2:] not in ([], ["ro"], ["rw"]):
        raise bad("bad-value", f"expected the option `ro` or `rw`, found {kind_of(parts[2])}")
    path = "/" in parts[0] or parts[0][0] in ".~"
    return {
        "type": "bind" if path else "volume",
        "source": parts[0],
        "target": parts[1],
        "read_only": parts[2:] == ["ro"],
    }


def secrets(value: Any) -> Any:
    """`[NAME]` and `{NAME: {env | file}}` → [{name, env | file}]; a plain name is the variable's too."""
    if isinstance(value, dict):
        return [_secret(name, source) for name, source in value.items() if not name.startswith("x-")]
    if isinstance(value, list):
        return [_listed(item) if isinstance(item, str) else item for item in value]
    return value


def _secret(name: str, source: Any) -> Any:
    if source is None or source == {}:
        return _listed(name)
    return {**source, "name": name} if isinstance(source, dict) else source


def _listed(item: str) -> dict[str, str] | str:
    """Return a secret of which there is only a name; Compose's `NAME=value` is left for the model to refuse."""
    return _of_variable(item) if _WORD.fullmatch(item) else item


def _of_variable(name: str) -> dict[str, str]:
    """Return a secret that is read from the variable of its name. A bad name gets one error, not two."""
    return {"name": name, "env": name} if _VARIABLE.fullmatch(name) else {"name": name}


def secret_name(value: Any) -> Any:
    """`NAME` → {env}."""
    return {"env": variable(value)} if isinstance(value, str) else value


def variable(value: Any) -> Any:
    """The name of a variable stays as it is; what can only be a secret itself is refused, and quoted nowhere."""
    if not isinstance(value, str) or _VARIABLE.fullmatch(value):
        return value
    if re.fullmatch(r"[A-Za-z0-9_-]*", value):
        raise bad("bad-variable", "this is not the name of a secret", "letters, digits and `_`, no digit first")
    hint = "put it into a variable or a file, and write the name of that: `SLACK_URL`, or `{file: PATH}`"
    raise bad("secret-in-spec", "a secret itself is here, where everybody who sees the spec sees it", hint)


def email(value: Any) -> Any:
    """`a@b` and `[a@b, …]` → {to}."""
    return {"to": value} if isinstance(value, str | list) else value
