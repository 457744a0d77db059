"""Pauses that a framework's launcher makes, and that one which was started from standby need not make.

Those of Paddle's launcher are in paddle/distributed/launch/controllers/master.py, class HTTPMaster. Its launchers meet at
one of them, which serves at the address of `--master`:

* One that has this address itself sleeps for up to two seconds, by chance, and then serves unless somebody else does by
  now (`lazy_init`): so several launchers at one address take turns. jobctl starts one launcher for each node. Where no
  other node of the generation has that address, nobody else would serve there, and there is no turn to wait for.
* Each asks twice a second whether all have come (`sync_peers`). From standby they come within a tenth of a second. So the
  first pauses are short, and double up to the half second of Paddle: each launcher asks six times more, at most. The more
  nodes there are, the longer is the first pause. So the one thread that answers gets a hundred questions a second at
  most, as many as fifty launchers ask by themselves.

A pause is shortened in functions alone whose source is known, byte by byte. Another version of Paddle makes all of its
pauses, and so does each launcher that is started cold: jobctl has no code in its interpreter.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.records import record

if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from jobctl.jobspec.launcher.standby.messages import Gathering

    Line = Tuple[CodeType, int]  # of a function, and its number in the file
    Shorter = Callable[[float], float]  # how long a pause is, by how long it would be
FIRST_SHARE = 0.01  # seconds of the first pause for each node


def no_turns(gathering: Gathering) -> Optional[Shorter]:
    """Return that nobody waits for a turn at an address that is its own; None where it is not."""
    return (lambda asked: 0.0) if gathering.alone else None


def growing(gathering: Gathering) -> Shorter:
    """Return how long each pause is: they double, up to what they would be."""
    shares = [gathering.nodes * FIRST_SHARE]

    def following(asked: float) -> float:
        shares.append(2 * shares[-1])
        return min(asked, shares[-2])

    return following


@record
class KnownPause:
    """A pause of a framework's launcher: the method that makes it, and how it may be shortened."""

    module: str
    of: str  # the class
    method: str
    source: str  # the method's digest, by SHA-256
    line: int  # of the method, which is 0
    shorter: Callable[[Gathering], Optional[Shorter]]

    def place(self, module: Any) -> Optional[Line]:
        """Return the line that makes the pause, None where the method is another one than is known."""
        import hashlib
        import inspect

        method = getattr(getattr(module, self.of), self.method)
        lines, first = inspect.getsourcelines(method)
        if hashlib.sha256("".join(lines).encode()).hexdigest() != self.source:
            return None
        return method.__code__, first + self.line


OF_PADDLE = ("paddle.distributed.launch.controllers.master", "HTTPMaster")
# Alike in Paddle 3.0.0 and 3.3.1.
LAZY_INIT = "8a9c846ed23f144c7c1d97cfbbdd93f8cc045afddfd1f6141addb40068028f30"
SYNC_PEERS = "16d0f5ea44c7ec904c79ef373fc5c711ef3f6440a9711979ad15aa5a29273184"
PAUSES = {
    "paddle.distributed.launch.main": (
        KnownPause(*OF_PADDLE, "lazy_init", LAZY_INIT, 10, no_turns),
        KnownPause(*OF_PADDLE, "sync_peers", SYNC_PEERS, 44, growing),
    ),
}


class HurriedTime:
    """Stands in for the module `time` in a module whose pauses are known: these are shorter, all else is as it is."""

    def __init__(self, replaced: Any) -> None:
        self.replaced = replaced
        self.shorter: Dict[Line, Shorter] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.replaced, name)

    def sleep(self, seconds: float) -> None:
        """Sleep for as long as the line that calls this has to."""
        caller = sys._getframe(1)
        shorter = self.shorter.get((caller.f_code, caller.f_lineno))
        self.replaced.sleep(seconds if shorter is None else shorter(seconds))


class LauncherPauses:
    """The pauses of a framework's launcher that are known. To find them is to import the modules that make them."""

    def __init__(self, launcher: str) -> None:
        import importlib

        self.found: List[Tuple[KnownPause, Line]] = []
        for pause in PAUSES.get(launcher, ()):
            try:
                place = pause.place(importlib.import_module(pause.module))
            except Exception:  # a version without it; or it is broken, which the framework's launcher says when it runs
                continue
            if place is not None:
                self.found.append((pause, place))

    def shorten(self, gathering: Gathering) -> None:
        """Have them be as short as they may be in this generation."""
        for pause, place in self.found:
            module, shorter = sys.modules[pause.module], pause.shorter(gathering)
            if shorter is None:
                continue
            hurried: Any = vars(module)["time"]
            if not isinstance(hurried, HurriedTime):
                hurried = vars(module)["time"] = HurriedTime(hurried)
            hurried.shorter[place] = shorter
