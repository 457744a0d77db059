"""Another clock for one module alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def set_time(monkeypatch: pytest.MonkeyPatch, module: ModuleType, **functions: Callable[..., Any]) -> None:
    """Have a module that imports `time` call these instead: threads that earlier tests have left go on by the real one."""
    monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(time), **functions}))
