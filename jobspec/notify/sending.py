"""Messages that are being sent, one at a time through each channel, so that a slow one delays no other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from jobctl.jobspec.deploy.channels.send import NO_THREAD
from jobctl.jobspec.deploy.model.notification import Channel, DeliveryResult, Notification

Send = Callable[[Channel, Notification], DeliveryResult]


class Sending:
    """What is being sent. A message that takes its time keeps its channel busy, and nothing else."""

    def __init__(self) -> None:
        self._busy: set[str] = set()
        self._results: queue.Queue[tuple[str, str, DeliveryResult | BaseException]] = queue.Queue()

    def __bool__(self) -> bool:
        """Say whether anything is being sent."""
        return bool(self._busy)

    def is_busy(self, channel: Channel) -> bool:
        """Say whether something is being sent through a channel."""
        return channel.key in self._busy

    def start(self, send: Send, channel: Channel, message: Notification) -> None:
        """Send a message from a thread, which does not keep this process from ending."""

        def work() -> None:
            outcome: DeliveryResult | BaseException
            try:
                outcome = send(channel, message)
            except BaseException as error:  # `finished` raises it
                outcome = error
            self._results.put((channel.key, message.id, outcome))

        self._busy.add(channel.key)
        try:
            threading.Thread(target=work, name="notify-send", daemon=True).start()
        except RuntimeError:  # `ulimit -u`: it is tried again, as what nobody takes
            self._results.put((channel.key, message.id, DeliveryResult(NO_THREAD)))

    def finished(self, seconds: float) -> tuple[str, str, DeliveryResult] | None:
        """Wait for the next result: return the channel's key, the message's id and what became of it, None if there is none.

        Raises what sending has raised.
        """
        try:
            key, ident, outcome = self._results.get(timeout=seconds)
        except queue.Empty:
            return None
        self._busy.discard(key)
        if isinstance(outcome, BaseException):
            raise outcome
        return key, ident, outcome
