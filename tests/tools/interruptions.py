"""How a command may end while another program runs for it."""

from __future__ import annotations

import os
import signal

from jobctl.jobspec.deploy.model.errors import HostError


def interrupts() -> int:
    """Ctrl-C."""
    raise KeyboardInterrupt


def terminates() -> int:
    """SIGTERM; its handler ends the command."""
    os.kill(os.getpid(), signal.SIGTERM)
    return 0


def nobody_reads() -> int:
    """The reader of its output is gone, as after `| head -1`."""
    raise BrokenPipeError


def loses_the_host() -> int:
    """The connection to the host is lost."""
    raise HostError("h0", "lost", "the connection was lost", "")
