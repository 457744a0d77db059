"""Why an engine does not answer, found by asking its host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jobctl.jobspec.deploy.model.engine_kind import NAMES, Kind
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.base import FIRST_ANSWER, Result, Transport

CLIENT_TIMEOUT = 60.0  # seconds of silence that its client may take


def hangs(transport: Transport, kind: Kind) -> HostError:
    """Return the error for an engine that says nothing. Raises HostError where it is the host that does not answer."""
    transport.run(["true"], timeout=FIRST_ANSWER)
    message = f"its {NAMES[kind]} hangs: it was asked, and says nothing"
    return HostError(transport.host, "engine-failed", message, f"does `{kind} ps` there? If not, restart the engine")


def diagnose(transport: Transport, command: Sequence[str], error: str) -> HostError:
    """Return why the engine does not answer, found by asking the host."""
    host = transport.host
    result = transport.run([*command, "version", "--format", "{{.Server.Version}}"], timeout=CLIENT_TIMEOUT)
    text = (result.err or result.out).decode("utf-8", "replace")
    # Nothing has answered: only names tell which kind was to.
    kind: Kind = "podman" if "podman" in " ".join(command) else "docker"
    for matches, code, message in _CAUSES:
        if matches(result, text):
            return HostError(host, code, message.format(NAMES[kind]), _REMEDIES[kind][code])
    said = result.words if result.code else error
    return HostError(host, "engine-failed", f"its {NAMES[kind]} does not answer: {said}")


_CAUSES: tuple[tuple[Callable[[Result, str], bool], str, str], ...] = (
    (
        lambda result, text: "sudo" in text and ("password" in text or "not allowed" in text),
        "sudo-refused",
        "sudo asks for a password there",
    ),
    (
        lambda result, text: result.code == 127 or "not found" in text,
        "docker-missing",
        "there is no `docker` on its PATH, and no `podman`",
    ),
    (
        lambda result, text: "permission denied" in text.lower(),
        "docker-no-permission",
        "its user may not talk to its {}",
    ),
    (
        lambda result, text: "Cannot connect" in text or "daemon running" in text,
        "docker-down",
        "its {} does not run",
    ),
)
_REMEDIES: Mapping[Kind, Mapping[str, str]] = {
    "docker": {
        "sudo-refused": "allow `docker` without one in sudoers, or add the user to the group docker and leave out `docker=sudo`",
        "docker-missing": "install Docker Engine there (https://docs.docker.com/engine/install/), or Podman and its socket",
        "docker-no-permission": "`sudo usermod -aG docker USER` there and log in again, or `docker=sudo` in the hosts file",
        "docker-down": "`sudo systemctl start docker` there",
    },
    "podman": {
        "sudo-refused": "allow `podman` without one in sudoers, or use the user's own: `docker=unix:///run/user/UID/podman/podman.sock`",
        "docker-missing": "install Podman there, and `systemctl enable --now podman.socket`",
        "docker-no-permission": "only root may talk to the system's: use `docker=sudo`, or the user's own, "
        "`docker=unix:///run/user/UID/podman/podman.sock`",
        "docker-down": "`sudo systemctl enable --now podman.socket` there, or `systemctl --user enable --now podman.socket` for "
        "the user's own",
    },
}
