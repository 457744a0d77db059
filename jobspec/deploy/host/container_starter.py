"""Starting containers of a job on one host: the commands, and why a container does not start."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Literal

from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.errors import HostError, NotPrepared
from jobctl.jobspec.deploy.transport.base import Result, Transport
from jobctl.jobspec.render.artefact import COMPOSE_FILE
from jobctl.jobspec.spec.targets import traits_of

# How runc, and crun, name a limit that the engine may not raise, and what artefacts get for it then.
_REFUSED: dict[str, tuple[re.Pattern[bytes], str]] = {
    "JOBCTL_MEMLOCK": (re.compile(rb"rlimit type 8\b|RLIMIT_MEMLOCK"), "65536"),  # bytes, which every engine may give
    "JOBCTL_NICE": (re.compile(rb"rlimit type 13\b|RLIMIT_NICE"), ""),
}
# A process may leave SCHED_IDLE, and go back to the nice value 0 (that is 20 - 20), without a privilege (setrlimit(2)).
_BACK_TO_USUAL = "20"
STARTING = 600.0  # seconds of silence that starting a container may take


class ContainerStarter:
    """Starts containers on one host, from the artefacts in the job's work directory there."""

    def __init__(self, transport: Transport, target: Literal["compose", "ssh"], engine: Engine) -> None:
        self.transport, self.target, self.engine = transport, target, engine
        self._refused: set[str] = set()  # of _REFUSED

    def start(
        self, work: PurePosixPath, name: str, report: PurePosixPath | None = None, image: str | None = None
    ) -> Result:
        """Run the command that starts the container called `name` in artefacts; wait for its launcher's `report`.

        Raises HostError.
        """
        self.engine.check()  # its client would wait for STARTING
        argv, other = self._command(work, name, image)
        wait = argv if report is None else SCRIPTS.argv("start", str(report), *argv)
        return self.transport.run(wait, other, timeout=STARTING)

    def lowers_limit(self, result: Result) -> bool:
        """Say whether a container did not start since the engine may not raise a limit that jobctl asks for; ask no more.

        Rootless engines may not, nor those without CAP_SYS_RESOURCE.
        """
        if result.code == 0:
            return False
        named = {name for name, (words, _) in _REFUSED.items() if words.search(result.err)} - self._refused
        self._refused |= named
        return bool(named)

    def _limits(self) -> list[str]:
        """Return what limits artefacts get instead of their own, as NAME=VALUE."""
        raised = {"JOBCTL_NICE": _BACK_TO_USUAL} if self.engine.raises_limits() else {}
        refused = {name: _REFUSED[name][1] for name in self._refused}
        return [f"{name}={value}" for name, value in sorted({**raised, **refused}.items()) if value]

    def _artefact(self, name: str) -> str:
        """Return the file below the work directory that starts what is called `name`."""
        return COMPOSE_FILE if traits_of(self.target).uses_compose else f"{name}.sh"

    def _command(self, work: PurePosixPath, name: str, image: str | None) -> tuple[list[str], bytes]:
        """Return the command that starts what is called `name` in artefacts, and what it reads."""
        artefact = str(work / self._artefact(name))
        if not traits_of(self.target).uses_compose:
            return ["env", f"JOBCTL_IMAGE={image or ''}", *self._variables(), "sh", artefact], b""
        given = str(work / "compose.env")
        # A docker without the plugin takes `-f` for its own, and says so in the words that _CAUSES knows.
        files, other = ["-f", artefact, "--env-file", given], b""
        kind = self.engine.kind()
        labels = kind.security_options
        keys = {**({"image": image} if image else {}), **({"security_opt": labels} if labels else {})}
        if keys:
            files += ["-f", "-"]
            other = json.dumps({"services": {name: keys}}).encode()
        words = [*self.engine.command, "compose", *files, "up", "-d", "--no-recreate", "--quiet-pull", name]
        return SCRIPTS.argv("compose", given, " ".join(self._limits()), kind.login, *words), other

    def _variables(self) -> list[str]:
        """Return what jobctl's scripts ask of the host, as words for `env`: how to call `docker`, and what its engine needs."""
        kind = self.engine.kind()
        return [
            f"JOBCTL_DOCKER={' '.join(self.engine.command)}",
            *self._limits(),
            *(f"JOBCTL_SECURITY={option}" for option in kind.security_options),
            *([f"JOBCTL_USER={kind.login}"] if kind.login else []),
        ]

    def not_started(self, work: PurePosixPath, name: str, what: str, result: Result) -> HostError:
        """Return why the container called `name` could not be started: somebody may have removed files of the job."""
        error = self.error(what, result)
        lacks_source = error.code == "no-such-path" and f"{work}/" in error.cause
        if lacks_source or self.transport.run(["test", "-e", str(work / self._artefact(name))]).code != 0:
            return NotPrepared(self.transport.host, f"cannot {what}: files of the job are not in {work} any more")
        return error

    def error(self, what: str, result: Result) -> HostError:
        """Return why a container could not be started, with the remedy where the cause is a common one."""
        text = result.err.decode("utf-8", "replace")
        for sign, code, hint in _CAUSES:
            line = next((line.strip() for line in text.splitlines() if sign in line or sign in line.lower()), None)
            if line is not None:
                return HostError(self.transport.host, code, f"cannot {what}: {line}", hint)
        return HostError(self.transport.host, "cannot-start", f"cannot {what}: {result.words}", None)

    def run_script(self, script: bytes, timeout: float = STARTING) -> Result:
        """Run a shell script there whose `docker` is the host's."""
        while self.lowers_limit(result := self.transport.run(self.script_argv(script), timeout=timeout)):
            pass
        return result

    def interact_script(self, script: bytes) -> int:
        """Run a shell script there whose `docker` is the host's, with the terminal; return its exit code."""
        return self.transport.interact(self.script_argv(script))

    def script_argv(self, script: bytes) -> list[str]:
        """Return the command that runs a shell script there whose `docker` is the host's."""
        text = script.decode("utf-8", "surrogateescape")
        return ["env", *self._variables(), "sh", "-c", text]


_DOWN = ("docker-down", "`sudo systemctl start docker` there")
_CAUSES = (
    ("Cannot connect to the Docker daemon", *_DOWN),
    ("failed to connect to the docker API", *_DOWN),  # Docker 28 and later
    ("error during connect", *_DOWN),  # it ended in between
    ("Cannot connect to Podman", "docker-down", "`systemctl enable --now podman.socket` there"),
    ("is not a docker command", "compose-missing", "install the Compose plugin there, or use `--target ssh`"),
    ("there is no Compose plugin", "compose-missing", "install the Compose plugin there, or use `--target ssh`"),
    ("unknown shorthand flag", "compose-missing", "install the Compose plugin there, or use `--target ssh`"),
    ("No such image", "image-missing", "`pull: missing` pulls it; or load it there with `docker load`"),
    (
        "pull access denied",
        "image-refused",
        "is the name right? `docker login` here, or load it there with `docker load`",
    ),
    (
        "executable file not found",
        "python-missing",
        "the image has no such interpreter: `container.python` names another",
    ),
    ("catatonit", "init-missing", "install the package catatonit there: Podman's `--init` needs it"),
    ("[FATAL tini", "python-missing", "the image has no such interpreter: `container.python` names another"),
    ("could not select device driver", "no-gpu-runtime", "install the NVIDIA Container Toolkit there"),
    ("bind source path does not exist", "no-such-path", "make it there: jobctl creates nothing in its place"),
    (
        "error setting rlimit",
        "ulimit-refused",
        "its engine may not raise limits: set `resources.ulimits` lower",
    ),
    ("no space left on device", "disk-full", "make room where Docker keeps its data (`docker system df`)"),
)
