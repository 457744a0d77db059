"""What the tests of reports share: a real browser."""

from __future__ import annotations

from tests.tools.browser import browse

__all__ = ["browse"]  # a fixture
