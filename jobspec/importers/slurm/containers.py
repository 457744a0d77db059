"""Containers of batch scripts (pyxis, apptainer, singularity, enroot), as `docker run` would say them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jobctl.jobspec.importers.launchers.docker import DockerRun
from jobctl.jobspec.importers.option_words import leading
from jobctl.jobspec.importers.values import listed

_FLAGS = {
    "--nv", "--rocm", "--nvccli", "--cleanenv", "-e", "--contain", "-c", "--containall", "-C", "--writable-tmpfs",
    "--writable", "-w", "--no-home", "--fakeroot", "-f", "--ipc", "-i", "--pid", "-p", "--uts", "--userns", "-u",
    "--compat", "--no-mount-home", "--no-init", "--keep-privs", "--no-privs", "--disable-cache",
}  # fmt: skip


_FILES = (".sif", ".sqsh", ".img", ".simg")


def image(text: str) -> str | None:
    """Return the image as a registry knows it, or its file with its whole path; None for another file or place."""
    match = re.match(r"(?:docker|dockerd|podman)://(?:[^@/]+@)?", text)
    text = text[match.end() :] if match else text
    text = text.replace("#", "/", 1)
    if text.startswith("/") and text.endswith(_FILES):
        return text
    file = text.endswith(_FILES) or text.startswith(("/", "./", "$"))
    return None if file or "://" in text else text


def _volumes(text: str) -> list[tuple[str, str]]:
    return [("--volume", part if ":" in part else f"{part}:{part}") for part in listed(text)]


def pyxis(options: Mapping[str, str], argv: Sequence[str]) -> DockerRun | None:
    """Return the container that `srun --container-image` asks for."""
    name = image(options.get("--container-image", ""))
    if not name:
        return None
    said = _volumes(options.get("--container-mounts", ""))
    if work := options.get("--container-workdir"):
        said.append(("--workdir", work))
    return DockerRun(tuple(said), name, tuple(argv))


# Variables of the programs themselves: what begins a variable of the container, and what names volumes.
_PASSED = ("APPTAINERENV_", "SINGULARITYENV_")
_BINDS = ("APPTAINER_BIND", "APPTAINER_BINDPATH", "SINGULARITY_BIND", "SINGULARITY_BINDPATH")
_OWN = ("APPTAINER", "SINGULARITY", "ENROOT_")


def of_container(env: Mapping[str, str | None]) -> tuple[dict[str, str | None], list[tuple[str, str]]]:
    """Return the variables that processes in a container get, and the volumes that variables of its program name."""
    given = {name: value for name, value in env.items() if not name.startswith(_OWN)}
    given |= {name.partition("_")[2]: value for name, value in env.items() if name.startswith(_PASSED)}
    return given, [one for name in _BINDS for one in _volumes(env.get(name) or "")]


def _mounted(value: str) -> list[tuple[str, str]]:
    """`--mount type=bind,source=/a,destination=/b,ro` of apptainer."""
    fields = {name: text for name, _, text in (part.partition("=") for part in listed(value))}
    source = fields.get("source") or fields.get("src") or ""
    target = fields.get("destination") or fields.get("dst") or fields.get("target") or source
    return [("--volume", f"{source}:{target}{':ro' if 'ro' in fields else ''}")] if source else []


def apptainer(words: Sequence[str]) -> tuple[str, DockerRun, list[str]] | None:
    """Return the image of `apptainer exec` as it is written, its container, and options that have no place.

    None if it starts no command.
    """
    while words and words[0].startswith("-"):
        words = words[1:]
    said: list[tuple[str, str]] = []
    lost = ["run"] if words and words[0] == "run" else []
    at = 1
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        at += 1
        if name.startswith("-B") and len(name) > 2:
            name, value, equals = "-B", words[at - 1][2:], "="
        if name not in _FLAGS and not equals and at < len(words):
            value = words[at]
            at += 1
        if name in ("--bind", "-B", "--mount"):
            said += _mounted(value) if name == "--mount" else _volumes(value)
        elif name in ("--pwd", "--cwd", "--env"):
            said += [("--env", one) for one in listed(value)] if name == "--env" else [("--workdir", value)]
        elif name == "--nv":
            said.append(("--gpus", "all"))
        elif name not in _FLAGS:
            lost.append(f"{name} {value}".strip())
    if not words or words[0] not in ("exec", "run") or at + 1 >= len(words):
        return None
    if not {"--contain", "-c", "--containall", "-C"} & set(words[:at]) and "--workdir" not in dict(said):
        said.append(("--volume", "$$PWD:/workspace"))  # it mounts the folder that it is called in
    return words[at], DockerRun(tuple(said), image(words[at]) or "", tuple(words[at + 1 :])), lost


_ENROOT_VALUES = {"-c", "--rc", "--conf", "-e", "--env", "-m", "--mount"}


def enroot(words: Sequence[str]) -> tuple[str, DockerRun, list[str]] | None:
    """Return the image of `enroot start` as it is written, its container, and options that have no place.

    None if it starts no command.
    """
    if not words or words[0] != "start":
        return None
    said: list[tuple[str, str]] = []
    lost: list[str] = []
    options, rest = leading(words[1:], _ENROOT_VALUES)
    for name, value in options:
        if name in ("-m", "--mount"):
            said.append(("--volume", _fstab(value)))
        elif name in ("-e", "--env"):
            said.append(("--env", value))
        elif name in ("-r", "--root"):
            said.append(("--user", "root"))
        elif name not in ("-w", "--rw"):
            lost.append(f"{name} {value}".strip())
    if len(rest) < 2:
        return None
    return rest[0], DockerRun(tuple(said), image(rest[0]) or "", tuple(rest[1:])), lost


def _fstab(text: str) -> str:
    """Return a mount of enroot, which is a line of fstab with colons, as a volume."""
    source, _, rest = text.partition(":")
    target, *more = rest.split(":") if rest else [source]
    only = any("ro" in listed(part) for part in more)
    return f"{'$$PWD' if source == '.' else source}:{target or source}{':ro' if only else ''}"
