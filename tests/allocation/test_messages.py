"""What coordinator and node runners hear: messages of their own job, whatever else arrives at their ports."""

from __future__ import annotations

import argparse
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.allocation.messages import TICK_KEYS, Datagrams
from jobctl.jobspec.allocation.node_runner import NodeRunner

TICK: dict[str, Any] = {"who": "a", "tick": 1, "host": "s1", "slot": 0, "names": 0}
DEEP = b"[" * 30000
FOREIGN = [
    DEEP,
    b"{}",
    b"\xff",
    b"",
    json.dumps(TICK).encode(),
    json.dumps({**TICK, "token": "other"}).encode(),
    DEEP + b', "token": "t"}',
    b'{"who": ' + DEEP + b', "token": "t"}',
    b'\xff"token": "t"}',
    b'{"token": "t"}',
    json.dumps({**TICK, "slot": [], "token": "t"}).encode(),
    json.dumps({**TICK, "tick": "1", "token": "t"}).encode(),
]


@pytest.mark.parametrize("foreign", FOREIGN, ids=range(len(FOREIGN)))
def test_what_is_no_message_of_the_job_is_passed_over(foreign: bytes) -> None:
    """Anybody can send to the port. What nests too deep exhausted the stack, and ended the job."""
    heard, sender = Datagrams("t", TICK_KEYS), Datagrams("t", TICK_KEYS)
    with heard.socket, sender.socket:
        at = ("127.0.0.1", heard.port)
        sender.socket.sendto(foreign, at)
        sender.send(TICK, at)
        assert [message for message, _ in heard.receive()] == [{**TICK, "token": "t"}]


def test_a_stranger_s_message_is_not_even_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Datagrams("t", TICK_KEYS)
    monkeypatch.setattr("jobctl.jobspec.allocation.messages.parse_json", pytest.fail)
    with heard.socket, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for text in (DEEP, json.dumps({**TICK, "token": "other"}).encode()):
            stranger.sendto(text, ("127.0.0.1", heard.port))
        assert list(heard.receive()) == []


def test_a_runner_whose_place_another_one_has_leaves(tmp_path: Path) -> None:
    """The coordinator tells it no more than that."""
    (tmp_path / "slurm.json").write_text(json.dumps({"host_timeout": 6, "stop_grace": 1, "container": "none"}))
    runner = NodeRunner(argparse.Namespace(work=str(tmp_path), address="127.0.0.1", port=9))
    with runner.datagrams.socket:
        runner.tell(100.0)
        runner.hear({"who": runner.who, "tick": 1, "seq": 0, "leave": True})
        assert runner.order["leave"] is True
