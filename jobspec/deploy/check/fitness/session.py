"""A probe that runs on a host, and is asked one thing after another: to start it takes longer than to measure."""

from __future__ import annotations

import contextlib
import json
from importlib.resources import files
from typing import Any

from jobctl.jobspec.deploy.check.survey import CheckedHost
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.untrusted import Json, parse_object
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.shell import Look, look_script

END_TIMEOUT = 20.0  # seconds within which a container is removed
MAX_ANSWER_BYTES = 1 << 20  # bytes of an answer


def probe_source() -> str:
    """Return the program that measures a host: two files joined, without what each of them imports from the other."""
    here = files("jobctl.jobspec.deploy.check.fitness")
    texts = [here.joinpath(name).read_text(encoding="utf-8") for name in ("network_probe.py", "probe.py")]
    lines = [
        line for text in texts for line in text.splitlines() if not line.startswith(("from __future__", "from jobctl."))
    ]
    return "\n".join(["from __future__ import annotations", *lines, ""])


def start_probe(plan: Plan | None, seat: CheckedHost, name: str, token: str) -> ProbeSession:
    """Start the probe in a container like the job's, called `name`; without a job, on the host itself."""
    if plan is None or not seat.nodes:
        channel = seat.host_job.transport.dial(_with_errors(["python3", "-c", probe_source(), token]))
        return ProbeSession(seat.name, channel, token)
    node = seat.nodes[0]
    command = (node.container.python, "-c", probe_source(), token)
    script = look_script(plan, node, name, str(seat.host_job.work), command, Look(flags=("-i",)))
    channel = seat.host_job.transport.dial(_with_errors(seat.host_job.starter.script_argv(script)))
    return ProbeSession(seat.name, channel, token)


def _with_errors(argv: list[str]) -> list[str]:
    """Return the command with its errors among its output, where they explain why it ends."""
    return ["sh", "-c", 'exec "$@" 2>&1', "sh", *argv]


class ProbeSession:
    """The probe of one host. Its methods raise HostError."""

    def __init__(self, host: str, channel: Any, token: str) -> None:
        self.host, self.channel, self.token = host, channel, token
        self.broken = False  # it has ended, or hangs
        self._left = b""

    def ask(self, what: str, patience: float, **task: Any) -> Json:
        """Have it do a task, and return what it says."""
        self.channel.settimeout(patience)
        said = b""
        try:
            with contextlib.suppress(BrokenPipeError):  # it has ended, and its last words say why
                self.channel.sendall(json.dumps({"do": what, "patience": patience, **task}).encode() + b"\n")
            while True:
                line = self._line()
                found = parse_object(line)
                if found is not None and found.get("token") == self.token:
                    break
                said = line.strip() or said  # what the image, or Docker, prints besides
        except TimeoutError:
            self.broken = True
            message = f"no answer within {patience:g} s while `{what}` was measured"
            raise HostError(self.host, "silent", message, "look whether it hangs, on a disk for example") from None
        except (OSError, EOFError) as error:
            self.broken = True
            words = said.decode("utf-8", "replace") or str(error) or "it ended"
            raise HostError(self.host, "command-failed", f"cannot measure `{what}`: {words}") from error
        if "error" in found:
            raise HostError(self.host, "command-failed", f"cannot measure `{what}`: {found['error']}")
        return found

    def _line(self) -> bytes:
        while b"\n" not in self._left:
            data = self.channel.recv(65536)
            if not data or len(self._left) > MAX_ANSWER_BYTES:
                raise EOFError(self._left.decode("utf-8", "replace").strip())
            self._left += data
        line, _, self._left = self._left.partition(b"\n")
        return line

    def close(self) -> None:
        """Let it end, since its input ends; return when its container is removed."""
        with contextlib.suppress(OSError, EOFError):
            self.channel.settimeout(END_TIMEOUT)
            self.channel.shutdown(1)  # of its input only: when `docker run` closes its output, the container is gone
            while not self.broken and self.channel.recv(65536):
                pass
        self.channel.close()
