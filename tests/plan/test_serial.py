"""Values that are read from JSON."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from jobctl.jobspec.plan.serial import load


@dataclass(frozen=True)
class Answer:
    number: int


def test_what_reads_answers_of_many_hosts_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built, second = list[object](), threading.Event()

    class Counted(pydantic.TypeAdapter[Any]):
        def __init__(self, kind: Any) -> None:
            built.append(kind)
            if len(built) > 1:
                second.set()
            second.wait(0.2)  # as long as it takes to build one of a large class
            super().__init__(kind)

    monkeypatch.setattr(pydantic, "TypeAdapter", Counted)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda number: load(Answer, {"number": number}), range(4)))
    assert found == [Answer(number) for number in range(4)]
    assert built == [Answer]
