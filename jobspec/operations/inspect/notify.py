"""Whom a job tells of what happens, and whether a message reaches them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Literal

from jobctl.jobspec.operations.errors import InvalidSpec
from jobctl.jobspec.operations.resolve.channels import channels_in_config, channels_in_spec
from jobctl.jobspec.operations.resolve.job import DEFAULT_SPEC, is_spec_file, job_of_name, load
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.model.notification import Channel, DeliveryResult
    from jobctl.jobspec.notify.outbox import Outbox
    from jobctl.jobspec.operations.reporter import Reporter

NO_JOB = "test"  # what a message names where only the configuration counts


@dataclass(frozen=True, slots=True)
class Recipients:
    """The channels of a job. `source`: those that `up` has read of a job that is up, or what `up` would read now.

    `job` is None where only the configuration counts. `outbox` has what nobody has taken yet, of a job that is up.
    """

    job: str | None
    source: Literal["up", "spec", "config"]
    channels: tuple[Channel, ...]
    outbox: Outbox | None = None

    def waiting(self, channel: Channel) -> int:
        """Return how many messages wait for a channel."""
        return sum(1 for entry in self.outbox.entries if entry.channel == channel.key) if self.outbox else 0

    def problem(self, channel: Channel) -> str | None:
        """Return why a channel did not take its last message, None if it did."""
        line = self.outbox.lines.get(channel.key) if self.outbox else None
        return line.problem if line else None


@dataclass(frozen=True, slots=True)
class Tested:
    """What became of the test message for a channel, after how many seconds."""

    channel: Channel
    delivery: DeliveryResult
    seconds: float


def recipients_of(job: str | None, reporter: Reporter) -> Recipients:
    """Return whom a job tells: for the name of one that is up as `up` has read it, for a spec as `up` would read it now.

    Without a spec, whom the configuration tells. Raises Refused for a secret that cannot be read, and InvalidSpec.
    """
    if job is not None and not is_spec_file(job):
        from jobctl.jobspec.operations.lifecycle.telling import teller_of

        directory = job_of_name(job)
        teller = teller_of(directory)
        _, channels = teller.channels()
        if channels or directory.job_record() is not None:
            return Recipients(job, "up", channels, teller.outbox())
    if job is None and not Path(DEFAULT_SPEC).exists():
        return Recipients(None, "config", channels_in_config(os.environ, reporter))
    _, loaded = load(job, None)
    if loaded.spec is None:
        raise InvalidSpec(loaded.diagnostics, loaded.source)
    channels = channels_in_spec(loaded.spec, loaded.directory, os.environ, reporter)
    return Recipients(loaded.spec.name, "config" if loaded.spec.notify is None else "spec", channels)


def send_tests(recipients: Recipients) -> Iterator[Tested]:
    """Send a marked message through each channel, side by side; yield what became of each, in their order."""
    from jobctl.jobspec.deploy.channels.send import send
    from jobctl.jobspec.deploy.model.notification import Notification
    from jobctl.jobspec.deploy.transport.aside import aside

    job = recipients.job or NO_JOB
    about = f"of job `{job}`" if recipients.job else "of your jobs"
    text = f"This is a test by `jobctl notify --test`: messages {about} arrive here. Nothing has happened."

    def test(channel: Channel) -> Tested:
        began = time.monotonic()
        message = Notification(token_hex(10), job, "test", "test", time.time(), None, text)
        return Tested(channel, send(channel, message), time.monotonic() - began)

    tests = [aside(partial(test, channel), "notify") for channel in recipients.channels]
    for one in tests:
        yield one.result()
