"""What the tests of deploying share: a real browser, for those that cannot do without."""

from __future__ import annotations

from tests.tools.browser import browse

__all__ = ["browse"]  # a fixture
