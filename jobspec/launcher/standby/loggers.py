"""The loggers that an import has made, by which a framework says what is wrong. They stay while a rank waits.

So a script that sets up logging before it imports the framework finds them there already. What `logging.config` does to all
loggers that there are is not for them: after a cold start they are not there yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.standby.effects import logs

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional, Set, Tuple
MIN_LOGGERS = 2  # loggers: that these are disabled does not say whether all were, or just these


def named_loggers() -> Dict[str, Any]:
    """Return all loggers but the root one."""
    known = list(logs().root.manager.loggerDict.items())
    return {name: one for name, one in known if isinstance(one, logs().Logger)}  # others only keep a place


def setup_of(logger: Any) -> Tuple[Any, ...]:
    """Return what a script may change of a logger, except whether it is disabled."""
    return logger.level, logger.propagate, list(logger.handlers), list(logger.filters)


class Loggers:
    """Those that are there now and were not `before`. What is Python's own (not `is_installed`) a script may change."""

    def __init__(self, before: Set[str], is_installed: Callable[[str], bool]) -> None:
        self.names = {name for name, one in named_loggers().items() if name not in before and not one.disabled}
        self.own = {name for name in self.names if is_installed(name.partition(".")[0])}
        self.setup: Dict[str, Tuple[Any, ...]] = {}
        self.kind = logs().getLoggerClass()

    def note(self) -> None:
        """Take note of how they are when all imports are made."""
        known = named_loggers()
        self.setup = {name: setup_of(known[name]) for name in self.own}

    def disabled(self) -> Set[str]:
        """Return which ones are disabled now."""
        known = named_loggers()
        return {name for name in self.own if known[name].disabled}

    def all_disabled(self) -> bool:
        """Say whether something has disabled all that there are."""
        return len(self.own) > MIN_LOGGERS and self.disabled() == self.own

    def conflict(self) -> Optional[str]:
        """Return what the script has changed that decides how they are made, None if there is nothing."""
        if self.own and logs().getLoggerClass() is not self.kind:
            return "logging.getLoggerClass()"
        known = named_loggers()
        changed = {name for name, setup in self.setup.items() if setup_of(known[name]) != setup}
        changed |= set() if self.all_disabled() else self.disabled()
        return "the logger %s" % min(changed) if changed else None

    def enable(self) -> None:
        """Have them be as if they were made now."""
        if self.all_disabled():
            known = named_loggers()
            for name in self.names:
                known[name].disabled = False
        self.names, self.own, self.setup = set(), set(), {}
