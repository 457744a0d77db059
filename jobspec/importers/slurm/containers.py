"""Containers of batch scripts (pyxis, apptainer, singularity), as `docker run` would say them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobctl.jobspec.importers.launchers.docker import DockerRun
from jobctl.jobspec.importers.values import listed

_FLAGS = {
    "--nv", "--rocm", "--nvccli", "--cleanenv", "-e", "--contain", "-c", "--containall", "-C", "--writable-tmpfs",
    "--writable", "-w", "--no-home", "--fakeroot", "-f", "--ipc", "-i", "--pid", "-p", "--uts", "--userns", "-u",
    "--compat", "--no-mount-home", "--no-init", "--keep-privs", "--no-privs", "--disable-cache",
}  # fmt: skip


_FILES = (".sif", ".sqsh", ".img", ".simg")


def image(text: str) -> str | None:
    """Return the image as a registry knows it, or its file with its whole path; None for another file or place."""
    text = text.removeprefix("docker://").replace("#", "/", 1)
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


def apptainer(words: Sequence[str]) -> tuple[str, DockerRun, list[str]] | None:
    """Return the image of `apptainer exec` as it is written, its container, and options that have no place; None if it starts nothing."""
    said: list[tuple[str, str]] = []
    lost: list[str] = []
    at = 1
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        at += 1
        if name not in _FLAGS and not equals and at < len(words):
            value = words[at]
            at += 1
        if name in ("--bind", "-B", "--mount"):
            said += _volumes(value)
        elif name in ("--pwd", "--cwd", "-W", "--env"):
            said += [("--env", one) for one in listed(value)] if name == "--env" else [("--workdir", value)]
        elif name == "--nv":
            said.append(("--gpus", "all"))
        else:
            lost.append(f"{name} {value}".strip())
    if not words or words[0] != "exec" or at + 1 >= len(words):
        return None
    if not {"--contain", "-c", "--containall", "-C"} & set(words[:at]) and "--workdir" not in dict(said):
        said.append(("--volume", "$$PWD:/workspace"))  # it mounts the folder that it is called in
    return words[at], DockerRun(tuple(said), image(words[at]) or "", tuple(words[at + 1 :])), lost
