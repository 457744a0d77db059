"""What decides how a module is imported, beside the path: finders in `sys.meta_path`, `__import__`, modules put in place by hand.

Modules that a rank has imported early were never shown to what its script sets up. So that is asked before they are given to
the script, as the import of each of them would have.
"""

from __future__ import annotations

import builtins
import itertools
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Dict, List, Optional


class ImportHooks:
    """What there is before the script begins: with what early imports have added, and with the finder `own`."""

    def __init__(self, own: Any) -> None:
        self.finders: List[Any] = [own, *sys.meta_path]
        self.import_ = builtins.__import__

    def conflict(self, given: Dict[str, ModuleType], asked: str) -> Optional[str]:
        """Return what of the script would change how these modules are imported, None if nothing does.

        `asked` is the one whose import has begun: finders ahead have left it to us, or know of it.
        """
        if builtins.__import__ is not self.import_:
            return "builtins.__import__"
        own = [name for name in given if name in sys.modules]
        if own:
            return "sys.modules[%r]" % min(own)
        finders = self.added()
        if not finders:
            return None
        sys.modules.update(given)  # finders may look for their parents; if one is found, this process does not go on
        others = [name for name in given if name != asked]
        return "sys.meta_path" if any(finds(finder, name) for name in others for finder in finders) else None

    def added(self) -> List[Any]:
        """Return the finders that the script has added before that of the path."""
        from importlib.machinery import PathFinder

        before = itertools.takewhile(lambda finder: finder is not PathFinder, sys.meta_path)
        return [finder for finder in before if not any(finder is known for known in self.finders)]


def finds(finder: Any, name: str) -> bool:
    """Say whether a finder imports a module in a way of its own, or forbids it."""
    path = getattr(sys.modules.get(name.rpartition(".")[0]), "__path__", None)
    try:
        return finder.find_spec(name, path) is not None
    except Exception:  # it forbids it, or is of a kind that cannot be asked
        return True
