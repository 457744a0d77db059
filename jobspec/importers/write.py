"""The files that an import writes: a spec in the style of `jobctl init`, with comments, and a hosts file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from yaml import ScalarNode

from jobctl.jobspec.importers.draft import Found, HostLine
from jobctl.jobspec.importers.values import span
from jobctl.jobspec.spec.frameworks import FRAMEWORKS
from jobctl.jobspec.spec.reading.yaml_reader import Loader

# The keys in the order in which people read them; a blank line between groups.
_GROUPS = (
    ("name", "framework", "mode", "image", "pull", "script", "module", "command", "args", "per", "setup", "code"),
    ("nodes", "devices", "ps", "rendezvous", "etcd"),
    ("checkpoint", "recovery", "stop_grace_period"),
    ("volumes", "env", "env_file", "secrets", "resources", "network", "container", *FRAMEWORKS),
    ("kubernetes",),
    ("slurm",),
)

_HEAD = """\
# Made by `jobctl import` from {source}. `jobctl validate` checks it, `jobctl up` runs it on this
# machine, `jobctl up --hosts hosts.txt` on real hosts. All keys: `jobctl schema`.
"""
_WIDEST = 100
_LONGEST_NOTE = 300


_SLURM_HEAD = """\
# Made by `jobctl import` from {source}. `jobctl check --target slurm` asks Slurm whether it takes the
# job, `jobctl up --target slurm` submits it. All keys: `jobctl schema`.
"""


def spec_text(job: Found, source: str) -> str:
    """Return job.yaml; `source` says what it was made from."""
    groups = [list(_group(job, keys)) for keys in _GROUPS]
    body = "\n".join("".join(f"{line}\n" for line in lines) for lines in groups if lines)
    notes = "".join(f"# {comment(note)}\n" for note in job.notes)
    return (
        (_SLURM_HEAD if "slurm" in job.fields else _HEAD).format(source=comment(source))
        + body
        + (f"\n{notes}" if notes else "")
    )


def _group(job: Found, keys: tuple[str, ...]) -> Iterator[str]:
    for key in keys:
        if key in job.fields:
            yield from _entry(key, _plain(key, job.fields[key]), job.remarks.get(key))
        elif key in _WISHES and _WISHES[key][0](job):
            yield _WISHES[key][1]


def _several(job: Found) -> bool:
    nodes = job.fields.get("nodes")
    return isinstance(nodes, tuple) and nodes[1] > 1


# What a command does not say and a job needs: shown as a comment, for nobody can guess it.
_WISHES: Mapping[str, tuple[Callable[[Found], bool], str]] = {
    "image": (lambda job: True, "# image: registry.example.com/team/train:1.0   # needed on real hosts only"),
    "checkpoint": (_several, "# checkpoint: /path/that/all/hosts/see   # without it each restart begins from zero"),
}


def _plain(key: str, value: Any) -> Any:
    if key == "nodes":
        least, most = value
        return least if least == most else f"{least}:{most}"
    return value


def _entry(key: str, value: Any, remark: str | None) -> Iterator[str]:
    lines = list(_lines(key, value, ""))
    if remark and len(lines) == 1:
        lines[0] = f"{lines[0]}   # {comment(remark)}"
    elif remark:
        lines.insert(0, f"# {comment(remark)}")
    yield from lines


def _lines(key: str, value: Any, indent: str) -> Iterator[str]:
    """Yield `key: value`, on one line where that is short, otherwise in block style."""
    head = f"{indent}{scalar(key)}:"
    flow = _flow(value)
    block = isinstance(value, Mapping | tuple) and value
    if not block or (
        len(head) + len(flow) < _WIDEST and not (isinstance(value, Mapping) and not indent and key in _TALL)
    ):
        yield f"{head} {flow}".rstrip()
    elif isinstance(value, Mapping):
        yield head
        for name, item in value.items():
            yield from _lines(name, item, f"{indent}  ")
    else:
        yield head
        for item in value:
            yield f"{indent}  - {_flow(item)}"


# Mappings that are written line by line, as people do.
_TALL = ("env", "recovery", "slurm")


def _flow(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(name)}: {_flow(item)}".rstrip() for name, item in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return str(value).lower() if isinstance(value, int) else scalar(value)


# A text that stands without quotes: no character that YAML, in a list or outside of one, could take for its own.
_BARE = re.compile(r"(?!-(?:[ ]|$))[A-Za-z0-9_./+$-](?:[A-Za-z0-9_./+=@%^~$:-]*[A-Za-z0-9_./+=@%^~$-])?")
# What JSON leaves as it is and YAML does not hold, or some readers take for a line break.
_ESCAPED = re.compile('[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff"\\\\]|[\ud800-\udfff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_NUMBER = re.compile(r"[-+]?(\d[\d_]*(\.\d*)?|\.\d+)([eE][-+]?\d+)?|0[xo]\w*")  # also those of YAML 1.2 alone
_RESOLVER: Any = Loader("")


def scalar(text: str) -> str:
    """Return `text` as YAML: as it is where every reader takes it for text, in double quotes elsewhere."""
    if _BARE.fullmatch(text) and "${" not in text and _is_text(text):
        return text
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _is_text(text: str) -> bool:
    tag = _RESOLVER.resolve(ScalarNode, text, (True, False))
    return bool(tag == "tag:yaml.org,2002:str") and not _NUMBER.fullmatch(text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return _SHORT.get(match[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def comment(text: str) -> str:
    """Return `text` as part of a comment: one line, and nothing in it that shows nowhere."""
    line = " ".join(text.split())
    line = "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in line
    )
    return line if len(line) <= _LONGEST_NOTE else f"{line[: _LONGEST_NOTE - 1]}…"


def hosts_text(job: Found, source: str) -> str:
    """Return hosts.txt, nothing where no host is named."""
    if not job.hosts:
        return ""
    lines = [f"# Made by `jobctl import` from {comment(source)}: one host per line, as SSH knows it."]
    lines += [_host(host) for host in job.hosts]
    if job.missing:
        more = f"{job.missing} more host{'s are' if job.missing > 1 else ' is'} needed: nothing names"
        lines.append(f"# {more} {'them' if job.missing > 1 else 'it'}")
    return "".join(f"{line}\n" for line in lines)


def _host(host: HostLine) -> str:
    user, port = f"{host.user}@" if host.user else "", f":{host.port}" if host.port else ""
    keys = {
        "slots": host.slots,
        "devices": span(host.devices) if host.devices else None,
        "nodes": host.nodes if host.nodes > 1 else None,
        "roles": ",".join(host.roles),
    }
    name = f"[{host.name}]" if ":" in host.name else host.name
    return " ".join([f"{user}{name}{port}", *(f"{key}={value}" for key, value in keys.items() if value)])
