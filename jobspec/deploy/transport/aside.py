"""One thing beside another. Ctrl-C ends the process all the same: Python waits for the threads of an executor, not for these."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def aside(do: Callable[[], T], name: str) -> Future[T]:
    """Call `do` in a thread called `name`; return what will have its result."""
    done = Future[T]()

    def work() -> None:
        try:
            done.set_result(do())
        except BaseException as error:
            done.set_exception(error)  # else nobody would hear of it, and wait for ever

    Thread(target=work, daemon=True, name=name).start()
    return done
