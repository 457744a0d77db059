"""The same question to one host again and again: a script there answers each in one piece, on a channel that stays.

Each write on a host is a message here, and messages are what looking on costs: with a command each time there are up to ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.answers import bound
from jobctl.jobspec.deploy.transport.base import CHUNK, Transport

END = b"\n== end\n"  # of an answer


class Asker:
    """Asks one host, one thread at a time. The script there ends when its input does."""

    def __init__(self, transport: Transport, argv: Sequence[str], what: str, timeout: float) -> None:
        self.transport, self._argv, self._what, self._timeout = transport, list(argv), what, timeout
        self._channel: Any = None
        self._over = False

    def ask(self) -> bytes | None:
        """Return the next answer; None where sshd gives no session for the script. Raises HostError."""
        kept, self._channel = self._channel, None
        if kept is not None:
            with suppress(EOFError):  # the connection was lost meanwhile, or the script killed
                return self._ask(kept)
        if self._over:  # to dial would connect to the host again
            raise self._error("lost", "nobody asks any more")
        try:
            channel = self.transport.dial(self._argv)
        except HostError as error:
            if error.code == "too-many-sessions":
                return None
            raise
        channel.settimeout(self._timeout)
        try:
            return self._ask(channel)
        except EOFError as error:
            raise self._error("lost", "the connection was lost") from error

    def _ask(self, channel: Any) -> bytes:
        """Ask on a channel, and keep it. Raises EOFError if it has ended, HostError if the script says nothing."""
        try:
            said = self._answer(channel)
        except BaseException as error:
            channel.close()
            if isinstance(error, TimeoutError):
                raise self._error("silent", f"it has said nothing for {self._timeout:g} s") from error
            if isinstance(error, OSError):
                raise EOFError from error
            raise
        self._channel = channel
        if self._over:
            self.close()
        return said

    def _answer(self, channel: Any) -> bytes:
        channel.sendall(b"\n")
        said = bytearray()
        while not said.endswith(END):
            data = channel.recv(CHUNK)
            if not data:
                raise EOFError
            said += data
            bound(self.transport.host, f"what is asked to {self._what}", len(said))
        return bytes(said)

    def _error(self, code: str, why: str) -> HostError:
        return HostError(self.transport.host, code, f"cannot {self._what}: {why}", "look at the host and its network")

    def close(self) -> None:
        """Let go of the channel, also of one on which an answer is under way."""
        self._over = True
        if self._channel is not None:
            with suppress(OSError, EOFError):
                self._channel.close()

    def __del__(self) -> None:
        self.close()
