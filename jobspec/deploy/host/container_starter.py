"""Starting containers of a job on one host: the commands, and why a container does not start."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Literal

from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.base import Result, Transport
from jobctl.jobspec.spec.targets import traits_of

LEAST_MEMLOCK = 65536  # bytes, which every engine may give
_NO_MEMLOCK = re.compile(rb"rlimit type 8\b|RLIMIT_MEMLOCK")  # in the words of runc, and of crun
STARTING = 600.0  # seconds of silence that starting a container may take


class ContainerStarter:
    """Starts containers on one host, from the artefacts in the job's work directory there."""

    def __init__(self, transport: Transport, target: Literal["compose", "ssh"], engine: Engine) -> None:
        self.transport, self.target, self.engine = transport, target, engine
        self._memlock = ""  # bytes, where its engine may not lift the limit

    def start(
        self, work: PurePosixPath, name: str, report: PurePosixPath | None = None, image: str | None = None
    ) -> Result:
        """Run the command that starts the container called `name` in artefacts; wait for its launcher's `report`.

        Raises HostError.
        """
        argv, other = self._command(work, name, image)
        wait = argv if report is None else SCRIPTS.argv("start", str(report), *argv)
        return self.transport.run(wait, other, timeout=STARTING)

    def lowers_memlock(self, result: Result) -> bool:
        """Say whether a container did not start since the engine may not lift its limit on locked memory; lower that.

        Rootless engines may not, nor those without CAP_SYS_RESOURCE.
        """
        refused = result.code != 0 and _NO_MEMLOCK.search(result.err) is not None and not self._memlock
        if refused:
            self._memlock = str(LEAST_MEMLOCK)
        return refused

    def _command(self, work: PurePosixPath, name: str, image: str | None) -> tuple[list[str], bytes]:
        """Return the command that starts what is called `name` in artefacts, and what it reads."""
        if not traits_of(self.target).uses_compose:
            script = str(work / f"{name}.sh")
            return ["env", f"JOBCTL_IMAGE={image or ''}", *self._variables(), "sh", script], b""
        given = str(work / "compose.env")
        # A docker without the plugin takes `-f` for its own, and says so in the words that _CAUSES knows.
        files, other = ["-f", str(work / "compose.yaml"), "--env-file", given], b""
        kind = self.engine.kind()
        labels = kind.security_options
        keys = {**({"image": image} if image else {}), **({"security_opt": labels} if labels else {})}
        if keys:
            files += ["-f", "-"]
            other = json.dumps({"services": {name: keys}}).encode()
        words = [*self.engine.command, "compose", *files, "up", "-d", "--no-recreate", "--quiet-pull", name]
        return SCRIPTS.argv("compose", given, self._memlock, kind.login, *words), other

    def _variables(self) -> list[str]:
        """Return what jobctl's scripts ask of the host, as words for `env`: how to call `docker`, and what its engine needs."""
        kind = self.engine.kind()
        return [
            f"JOBCTL_DOCKER={' '.join(self.engine.command)}",
            f"JOBCTL_MEMLOCK={self._memlock}",
            *(f"JOBCTL_SECURITY={option}" for option in kind.security_options),
            *([f"JOBCTL_USER={kind.login}"] if kind.login else []),
        ]

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
        result = self.transport.run(self.script_argv(script), timeout=timeout)
        return self.transport.run(self.script_argv(script), timeout=timeout) if self.lowers_memlock(result) else result

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
