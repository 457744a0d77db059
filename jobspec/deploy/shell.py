"""A shell that is held on a host, and given one command after another.

Each new session of SSH begins with the login's shell, and its `.bashrc` can cost more than the command; the
supervisor looks every second. What a command prints ends with a mark that nobody can guess, on both streams. Commands with input have
a session of their own: what is put into a file, secrets too, is not for a shell to read.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from jobctl.jobspec.deploy.transport import Result, quote


class Command:
    """One command for a held shell: `text` is what the shell reads; fed with what it prints, it knows its `result`."""

    def __init__(self, argv: Sequence[str]) -> None:
        mark = secrets.token_hex(16)
        self._out_mark, self._err_mark = f"\n{mark} ".encode(), f"\n{mark}\n".encode()
        ending = f"code=$?; printf '\\n{mark} %d\\n' \"$code\"; printf '\\n{mark}\\n' >&2"
        self.text = f"( {quote(argv)} ) </dev/null\n{ending}\n".encode(errors="surrogateescape")

    def result(self, out: bytearray, err: bytearray) -> Result | None:
        """Return what the command did, None while it goes on."""
        at = out.rfind(self._out_mark, max(0, len(out) - len(self._out_mark) - 8))
        if at < 0 or not out.endswith(b"\n") or not err.endswith(self._err_mark):
            return None
        code = int(out[at + len(self._out_mark) : -1])
        return Result(code, bytes(out[:at]), bytes(err[: -len(self._err_mark)]))
