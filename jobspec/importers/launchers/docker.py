"""`docker run`: which of its options have a place in the spec, and where its image and command begin."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jobctl.jobspec.importers import values
from jobctl.jobspec.importers.draft import Draft, ImportProblem
from jobctl.jobspec.importers.escaping import is_constant, literal, with_defaults
from jobctl.jobspec.importers.names import UNKNOWN_OPTIONS, are_options
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.scalars import parse_size

# fmt: off
# Options without a value.
_FLAGS = {
    "--detach", "-d", "--interactive", "-i", "--tty", "-t", "--rm", "--privileged", "--init", "--publish-all", "-P",
    "--read-only", "--sig-proxy", "--oom-kill-disable", "--no-healthcheck", "--quiet", "-q", "--disable-content-trust",
}

# What jobctl does anyway, or what only a person at a terminal needs.
_SILENT = {
    "--detach", "-d", "--interactive", "-i", "--tty", "-t", "--rm", "--init", "--sig-proxy", "--quiet", "-q", "--name",
    "--no-healthcheck", "--disable-content-trust", "--detach-keys", "--log-driver", "--log-opt", "--cidfile",
}
# fmt: on

_WHY = {
    "--restart": "jobctl starts containers again: `recovery`",
    "--hostname": "each container gets a host name of its own",
    "-h": "each container gets a host name of its own",
    "--publish": "containers use the host's network",
    "-p": "containers use the host's network",
    "--publish-all": "containers use the host's network",
    "-P": "containers use the host's network",
    "--expose": "containers use the host's network",
    "--link": "containers use the host's network",
    "--ip": "containers use the host's network",
    "--entrypoint": "jobctl starts the container by itself",
    "--label": "jobctl sets its own labels",
    "-l": "jobctl sets its own labels",
    "--label-file": "jobctl sets its own labels",
}

_SHORT = {"-e": "--env", "-v": "--volume", "-w": "--workdir", "-u": "--user", "-m": "--memory", "-c": "--cpu-shares"}


@dataclass(frozen=True, slots=True)
class DockerRun:
    """What `docker run` says: options in order, the image, and what runs in it."""

    options: tuple[tuple[str, str], ...]
    image: str
    argv: tuple[str, ...]

    def option(self, name: str) -> str | None:
        """Return the last value of an option."""
        return next((value for key, value in reversed(self.options) if key == name), None)

    @property
    def env(self) -> dict[str, str | None]:
        """Return the variables of `-e`; None: as in the environment of the user who starts it."""
        pairs = [value.partition("=") for key, value in self.options if key == "--env"]
        return {name: value if equals else None for name, equals, value in pairs}


def split(words: Sequence[str], line: int | None) -> DockerRun:
    """Return what follows `docker run` in parts. Raises ImportProblem where nobody can tell what is what."""
    options: list[tuple[str, str]] = []
    at = 0
    while at < len(words) and (words[at].startswith("-") or are_options(words[at:])) and words[at] != "-":
        word = words[at]
        at += 1
        if word == "--":
            break
        if not word.startswith("-"):
            options.append((word, ""))
            continue
        pairs, takes = _option(word)
        if takes:
            if at == len(words):
                raise ImportProblem(f"`{word}` of docker run needs a value", "the command ends there", line)
            pairs[-1] = (pairs[-1][0], words[at])
            at += 1
        options += pairs
    if at >= len(words):
        raise ImportProblem("this `docker run` names no image", "docker run [OPTIONS] IMAGE COMMAND", line)
    return DockerRun(tuple(options), words[at], tuple(words[at + 1 :]))


def _option(word: str) -> tuple[list[tuple[str, str]], bool]:
    """Return the options in one word, and whether the value of the last one follows: `-it`, `-v/a:/b`, `--name=x`."""
    name, equals, value = word.partition("=")
    if name.startswith("--"):
        return [(name, value if equals else "true")], not equals and name not in _FLAGS
    found: list[tuple[str, str]] = []
    for place, letter in enumerate(word[1:], 2):
        short = f"-{letter}"
        if short in _FLAGS:
            found.append((short, "true"))
            continue
        value = word[place:].removeprefix("=")
        return [*found, (_SHORT.get(short, short), value)], not value
    return found, False


# What becomes of an option. Each function takes the draft, the value as a word, and the folder that commands run in.


def apply(container: DockerRun, draft: Draft, directory: str) -> None:
    """Put what `docker run` says into the draft; its variables are left to the module that knows the launcher."""
    draft.set("image", container.image)
    for name, value in container.options:
        how = _OPTIONS.get(name)
        if how is not None:
            how(draft, value, directory)
        elif not name.startswith("-"):
            draft.drop(name, UNKNOWN_OPTIONS)
        elif name in _WHY:
            draft.drop(_written(name, value), _WHY[name])
        elif name not in _SILENT and name not in _ELSEWHERE:
            for word in _written(name, value).split(" ", 1) if not name.startswith("--") else [_written(name, value)]:
                draft.add("container.options", word)


# The folder of the command, where no shell has filled it in.
_HERE = re.compile(r"^\$\$(PWD\b|\{PWD\}|\(pwd\))|^`pwd`")

# Read by the code that knows launchers, devices and folders.
_ELSEWHERE = {"--env", "--gpus", "--workdir"}


def _written(name: str, value: str) -> str:
    if name in _FLAGS and value == "true":
        return name
    return f"{name}={value}" if name.startswith("--") else f"{name} {value}"


def _checked(read: Callable[[str], Any]) -> Callable[[str], str]:
    """Return a reader that refuses what the spec's own refuses, and leaves the text as it is."""

    def text(value: str) -> str:
        try:
            read(value)
        except ValueError as error:
            raise ValueError(f"`{value}` has no effect there") from error
        return value

    return text


def _to(path: str, option: str, read: Callable[[str], Any] = str) -> Callable[[Draft, str, str], None]:
    def put(draft: Draft, value: str, directory: str) -> None:
        if (found := draft.read(value, read, f"{option}={value}")) is not None:
            draft.set(path, literal(found) if isinstance(found, str) else found)

    return put


def _append(path: str) -> Callable[[Draft, str, str], None]:
    return lambda draft, value, directory: draft.add(path, value)


def _volume(draft: Draft, value: str, directory: str) -> None:
    source, colon, rest = value.partition(":")
    target, _, options = rest.partition(":")
    if not colon:
        draft.drop(f"--volume={value}", "a volume without a name goes with its container")
    else:
        _mount(draft, f"--volume={value}", source, target, [part for part in options.split(",") if part], directory)


def _mount(draft: Draft, written: str, source: str, target: str, options: Iterable[str], directory: str) -> None:
    further = [part for part in options if part not in ("ro", "rw", "z", "Z", "cached", "delegated", "consistent")]
    _drop_options(draft, written, further)
    read_only = "ro" in options
    source = _HERE.sub(".", source)
    if source.rstrip("/") in (".", directory) and not read_only and draft.get("code") is None:
        draft.set("code", {"source": ".", "target": target} if target != "/workspace" else ".",
                  "what was mounted from the folder of the command is sent to every host")  # fmt: skip
        return
    if not target.startswith("/") or not source:
        draft.drop(written, "its target is not an absolute path")
        return
    if source.startswith("."):
        draft.check(f"volume {source}: a relative path works on this machine only; with hosts give the path on them")
    if ":" in source + target or "," in source + target:
        kind = "bind" if "/" in source or source[0] in ".~" else "volume"
        draft.add(
            "volumes",
            {"type": kind, "source": source, "target": target, **({"read_only": "true"} if read_only else {})},
        )
    else:
        draft.add("volumes", f"{source}:{target}" + (":ro" if read_only else ""))


def _drop_options(draft: Draft, written: str, options: Sequence[str]) -> None:
    if options:
        draft.drop(",".join(options) + f" of {written}", "only `ro` has a place in `volumes`")


_MOUNT = {"type", "source", "src", "target", "destination", "dst", "readonly", "ro", "consistency"}


def _long_mount(draft: Draft, value: str, directory: str) -> None:
    pairs = {key: text for key, _, text in (part.partition("=") for part in value.split(","))}
    further = [part for part in value.split(",") if part.partition("=")[0] not in _MOUNT]
    kind = pairs.get("type", "volume")
    source = pairs.get("source", pairs.get("src", ""))
    target = pairs.get("target", pairs.get("destination", pairs.get("dst", "")))
    if kind == "tmpfs" and target.startswith("/"):
        draft.add("volumes", {"type": "tmpfs", "target": target})
        _drop_options(draft, f"--mount={value}", further)
    else:
        only = any(pairs[key].lower() not in ("false", "f", "0") for key in ("readonly", "ro") if key in pairs)
        _mount(draft, f"--mount={value}", source, target, [*(["ro"] if only else []), *further], directory)


def _ulimit(draft: Draft, value: str, directory: str) -> None:
    name, _, limits = value.partition("=")
    soft, _, hard = limits.partition(":")
    if not all(re.fullmatch(r"-?\d{1,15}", part) for part in (soft, hard or soft)):
        draft.drop(f"--ulimit={value}", "it is no limit")
    elif (name, soft) != ("memlock", "-1"):
        limit: Any = int(soft) if hard in ("", soft) else {"soft": int(soft), "hard": int(hard)}
        draft.set(f"resources.ulimits.{name}", limit)


def _user(draft: Draft, value: str, directory: str) -> None:
    if value in ("$$(id -u)", "$$(id -u):$$(id -g)"):
        draft.set("container.user", "self")
    elif is_constant(value) and re.fullmatch(r"root|\d+(:\d+)?", value):
        draft.set("container.user", "root" if value in ("0", "0:0") else value)
    else:
        draft.drop(f"--user={value}", "the spec knows `self`, `root` and `UID:GID`")


def _pull(draft: Draft, value: str, directory: str) -> None:
    if value in ("missing", "always", "never"):
        draft.set("pull", value)


def _stop(draft: Draft, value: str, directory: str) -> None:
    if (found := draft.read(value, values.seconds, f"--stop-timeout={value}")) is not None:
        draft.set("stop_grace_period", found)


def _network(draft: Draft, value: str, directory: str) -> None:
    if value != "host":
        draft.drop(f"--network={value}", _WHY["--publish"])


def _cpus(draft: Draft, value: str, directory: str) -> None:
    found = draft.read(value, _checked(float), f"--cpus={value}")
    if found is not None:
        draft.set("resources.cpus", int(found) if found.isdigit() else found)


_SIZE = _checked(parse_size)

_OPTIONS: Mapping[str, Callable[[Draft, str, str], None]] = {
    "--volume": _volume,
    "--mount": _long_mount,
    "--ulimit": _ulimit,
    "--user": _user,
    "--network": _network,
    "--net": _network,
    "--pull": _pull,
    "--stop-timeout": _stop,
    "--shm-size": _to("resources.shm_size", "--shm-size", _SIZE),
    "--memory": _to("resources.memory", "--memory", _SIZE),
    "--cpus": _cpus,
    "--runtime": _to("container.runtime", "--runtime"),
    "--device": _append("container.devices"),
    "--cap-add": _append("container.cap_add"),
    "--env-file": _append("env_file"),
}


def gpus(value: str) -> tuple[int | None, tuple[int, ...] | None]:
    """Return how many GPUs, or which, `--gpus` asks for; (None, None): all. Raises ValueError."""
    text = with_defaults(value).strip("'\"")
    if text == "all":
        return None, None
    if text.isdigit():
        return values.positive(text), None
    match = re.search(r"device=([0-9,]+)", text)
    if match is None:
        raise ValueError("it names no GPUs by number")
    return None, values.ids(match[1])
