"""Signals by which SSH clients end the server that is their ProxyCommand."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from jobctl.jobspec.deploy.ssh_server import server as server_module


def test_a_signal_of_the_client_may_come_as_the_server_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client ends its ProxyCommand just as that sees that the client has gone: both tell the same."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    told: list[Any] = []

    def ends(wire: Any, keys: Any, session: Any, over: threading.Event, *signals: Any) -> None:
        handler: Any = signal.getsignal(signal.SIGHUP)
        with over._cond:  # type: ignore[attr-defined]
            coming = threading.Thread(target=handler, args=(signal.SIGHUP, None), daemon=True)
            coming.start()
            coming.join(30.0)  # at once, unless it waits for what this thread holds
            told.append((coming.is_alive(), *signals))

    monkeypatch.setattr(server_module, "serve", ends)
    nothing: Any = None
    try:
        server_module.serve_stdio(nothing, nothing)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert told == [(False, [signal.SIGHUP])]
