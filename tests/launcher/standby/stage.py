"""A standby without any process, by a clock that the test sets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jobctl.jobspec.launcher.report.node_report import StandbyState
from jobctl.jobspec.launcher.standby.messages import StandbyNews
from jobctl.jobspec.launcher.standby.standby import Standby
from tests.tools.launches import launch_of

MB = 10**6
READY = StandbyState("ready", None)
WARMING = StandbyState("warming", None)


class Fake:
    """What waits, without being there."""

    def __init__(self, run: Any) -> None:
        self.environ = dict(run.environment.environ)
        self.ready = self.ended = self.over = False
        self.says: list[StandbyNews] = []
        self.order, self.hears = None, True

    @property
    def imports(self) -> bool:
        return not self.ready

    def pids(self) -> list[int]:
        return [7]

    def price(self) -> None:
        return None

    def heard(self) -> list[StandbyNews]:
        said, self.says = self.says, []
        return said

    def end(self) -> None:
        self.over = True

    def hand_over(self, argv: Any, environment: Any, log: str) -> bool:
        self.order = argv
        return self.hears


class Stage:
    """A standby, its clock and its memory."""

    def __init__(self, root: Path) -> None:
        self.now, self.free, self.begun = 0.0, 20_000 * MB, list[Fake]()
        self.environment = SimpleNamespace(environ={"PLACE": "1", "RANK": "0"})
        self.run: Any = SimpleNamespace(
            environment=self.environment,
            launch=launch_of(nproc=2, start=["torchrun"]),
            footprint=lambda: 200 * MB,
            folders=SimpleNamespace(records=str(root)),
        )
        wanted = launch_of(standby={"imports": [["torch"]], "launcher": "torch.distributed.run", "off": ""})
        memory = lambda: (self.free, 24_000 * MB)  # noqa: E731
        self.standby = Standby(wanted, self.begin, lambda: self.now, memory)  # type: ignore[arg-type]
        self.take()

    def begin(self, run: Any) -> Fake:
        self.begun.append(Fake(run))
        return self.begun[-1]

    def look(self, seconds: float = 1.0, *, running: bool = True, says: Any = None) -> StandbyState:
        """Let time pass, have it look, and return the state."""
        self.now += seconds
        if says:
            self.begun[-1].says.append(says)
        self.standby.look(self.run, running)
        return self.standby.state()

    def take(self) -> Any:
        """Begin a generation; return what runs it."""
        return self.standby.take(["python3", "-m", "torch.distributed.run"], self.environment, "launch.log")  # type: ignore[arg-type]

    def ready(self) -> Fake:
        """Have one ready."""
        self.look()
        assert self.look(says=StandbyNews(ready=True)) == READY
        return self.begun[-1]
