"""Questions that a command asks before it does what cannot be undone."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.sending.kept_data import KeptData
from jobctl.jobspec.operations.inspect.data import DataHosts, DataOnHosts

from .test_prune import left, past


class Terminal(io.StringIO):
    """A terminal at which somebody types an answer, or presses a key that is none."""

    def __init__(self, typed: str | type[BaseException]) -> None:
        super().__init__()
        self.typed = typed

    def isatty(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> str:
        if isinstance(self.typed, str):
            return self.typed
        raise self.typed


@pytest.mark.parametrize(
    ("pressed", "code", "said"),
    [
        (KeyboardInterrupt, 130, []),
        (EOFError, 2, ["error: nothing was done: nobody answered the question"]),
    ],
)
def test_ctrl_c_at_a_question_interrupts_and_ctrl_d_is_no_answer(
    pressed: type[BaseException], code: int, said: list[str], jobctl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1, with which click ends both, says that a job has failed."""
    past("ended")
    monkeypatch.setattr("sys.stdin", Terminal(pressed))
    ran = jobctl("prune")
    assert (ran.code, ran.err.splitlines()[2:]) == (code, said)
    ran = jobctl("prune", "-o", "json")
    assert (ran.code, [json.loads(line)["error"]["exit_code"] for line in ran.out.strip().splitlines()]) == (
        code,
        [code] if said else [],
    )
    assert left() == {"ended"}


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2)])
def test_what_data_remove_asks_about_is_not_in_its_json(
    answer: str, code: int, jobctl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = DataOnHosts({"h1": [KeptData("bert", "1", 5, 0.0, ())]}, {})
    monkeypatch.setattr(DataHosts, "list", lambda there: kept)
    monkeypatch.setattr(DataHosts, "remove", lambda there, chosen: kept)
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    Path("hosts.txt").write_text("h1\n")
    ran = jobctl("data", "remove", "--hosts", "hosts.txt", "-o", "json")
    assert (ran.code, "bert" in ran.err, json.loads(ran.out).keys()) == (
        code,
        True,
        {"error"} if code else {"hosts", "failed_hosts"},
    )
