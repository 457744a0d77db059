"""Messages that are being sent, one at a time through each channel, so that a slow one delays no other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from jobctl.jobspec.deploy.model.notification import Channel, DeliveryResult, Notification

Send = Callable[[Channel, Notification], DeliveryResult]


class Flights:
    """What is on its way. One that never lands keeps its channel busy, and nothing else."""

    def __init__(self) -> None:
        self._flying: set[str] = set()
        self._landed: queue.Queue[tuple[str, str, DeliveryResult | BaseException]] = queue.Queue()

    def __bool__(self) -> bool:
        """Say whether anything is on its way."""
        return bool(self._flying)

    def is_busy(self, channel: Channel) -> bool:
        """Say whether something is on its way through a channel."""
        return channel.key in self._flying

    def start(self, send: Send, channel: Channel, message: Notification) -> None:
        """Send a message from a thread, which does not keep this process from ending."""

        def fly() -> None:
            outcome: DeliveryResult | BaseException
            try:
                outcome = send(channel, message)
            except BaseException as error:  # whoever waits is to see it
                outcome = error
            self._landed.put((channel.key, message.id, outcome))

        self._flying.add(channel.key)
        threading.Thread(target=fly, name="notify-send", daemon=True).start()

    def landed(self, seconds: float) -> tuple[str, str, DeliveryResult] | None:
        """Wait for the next to land: return the channel's key, the message's id and what became of it, None if none did.

        Raises what sending has raised.
        """
        try:
            key, ident, outcome = self._landed.get(timeout=seconds)
        except queue.Empty:
            return None
        self._flying.discard(key)
        if isinstance(outcome, BaseException):
            raise outcome
        return key, ident, outcome
