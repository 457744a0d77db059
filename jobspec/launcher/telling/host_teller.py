"""Tells people what happens to a job, where nobody watches and the URL of a webhook may be on the hosts.

Each message is sent by a process of its own: whatever the network does, it keeps no launcher from its ticks.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.peers.lease import TICK
from jobctl.jobspec.launcher.report.story import about
from jobctl.jobspec.launcher.system.files import note, read_json, write_json
from jobctl.jobspec.launcher.system.processes import boot_time, die_with_parent
from jobctl.jobspec.launcher.telling.notification import Notification
from jobctl.jobspec.launcher.telling.telling import Telling, Webhook, WebhookLine, mentioned, told_of
from jobctl.jobspec.launcher.telling.webhook import DeliveryResult, post_to

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence

    from jobctl.jobspec.launcher.node.agent import Launcher
    from jobctl.jobspec.launcher.order.order import Order
    from jobctl.jobspec.launcher.peers.messages import PeerMessage

WEBHOOKS = "notify.json"  # beside the file of secrets, mode 0600
SINCE = "telling.json"  # in the folder of a node
SENDS_FOR = 20  # seconds that a process gets to send a message
LOOK_AT_END = 0.1  # seconds between two looks meanwhile
GOOD_END = 60.0  # seconds for which the first launcher stays to tell that all are done


class Post:
    """One message that is on its way to a webhook, sent by a process that gets it and the URL through a file in memory."""

    def __init__(self, program: str, webhook: Webhook, message: Notification) -> None:
        task = {"url": webhook.url, "format": webhook.format, "message": vars(message)}
        handle = os.memfd_create("message", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(handle), "wb") as file:
                file.write(json.dumps(task).encode())
            os.lseek(handle, 0, os.SEEK_SET)
            self.process = subprocess.Popen(
                [sys.executable, "-S", "-E", program, "tell"],
                stdin=handle,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        finally:
            os.close(handle)
        assert self.process.stdout is not None
        self.pid, self.out, self.said = self.process.pid, self.process.stdout.fileno(), b""
        os.set_blocking(self.out, False)
        self.until = boot_time() + 2 * SENDS_FOR

    def answer(self, now: float) -> Optional[DeliveryResult]:
        """Return what became of the message, None while that is open."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data = os.read(self.out, 65536)
                if not data:
                    return self.end()
                self.said += data
        return self.end() if now > self.until else None

    def end(self) -> DeliveryResult:
        """Return what the process has said; one that has said nothing has not sent the message, as far as anybody knows."""
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.poll()
        try:
            return DeliveryResult(**json.loads(self.said.decode()))
        except (ValueError, TypeError):
            return DeliveryResult("it was not done after %d s" % SENDS_FOR)


def send_message() -> int:
    """Be the process that sends one message."""
    die_with_parent()
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.alarm(SENDS_FOR)
    task = json.load(sys.stdin)
    message = task["message"]
    for name in ("nodes", "covers"):
        message[name] = tuple(message[name])
    answer = post_to(task["url"], task["format"], Notification(**message))
    print(json.dumps(vars(answer)))
    return 0


class HostTeller:
    """Tells for a launcher, if `up` has left webhooks here."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        folder = os.path.dirname(launcher.secrets) if launcher.secrets and launcher.launch.tells else None
        self.path = os.path.join(folder, WEBHOOKS) if folder and launcher.session is None else None
        self.kept = os.path.join(launcher.dir, SINCE)
        since = (read_json(self.kept) or {}).get("since") if self.path else None
        self.telling = Telling(launcher.launch.node, since if isinstance(since, (int, float)) else None)
        self.webhooks: Dict[str, Webhook] = {}
        self.lines: Dict[str, WebhookLine] = {}
        self.posts: Dict[str, Post] = {}  # by webhooks
        self.stamp: object = None  # of the file of webhooks, as last read
        self.known: object = None  # how many events there were when they were read last
        self.ticks = 0  # that have mentioned what launchers have told
        self.next = 0.0

    @property
    def tells(self) -> bool:
        """Whether it may have to tell something."""
        return bool(self.webhooks) and self.launcher.story.log is not None

    def pids(self) -> List[int]:
        """Return the processes that send."""
        return [post.pid for post in self.posts.values()]

    def look(self, now: float) -> None:
        """Go on; what cannot be told for a reason that nobody thought of ends no training."""
        if self.path is None:
            return
        try:
            self.go_on(now)
        except Exception as error:
            self.path = None
            note("tells nobody any more: %s: %s" % (type(error).__name__, error))

    def go_on(self, now: float) -> None:
        """See what became of messages; each second, send what is due."""
        self.take_answers(now)
        if now < self.next:
            return
        self.next = now + TICK
        self.read_webhooks()
        order, log = self.launcher.orders.order, self.launcher.story.log
        if not self.tells or order is None or log is None or self.is_watched(now):
            return
        events = (log.stamp.file, log.stamp.count)
        if self.known != events:
            self.known = events
            self.telling.read(order.job, order.run_id, log.events, now)
        failed = self.launcher.recovery.failed is not None
        for webhook in self.webhooks.values():
            line = self.lines[webhook.key]
            message = self.telling.next_of(webhook, line, failed, now, time.time())
            if message is not None:
                self.send(webhook, line, message)

    def is_watched(self, now: float) -> bool:
        """Say whether somebody watches, or may; keep since when nobody does."""
        lease, before = self.launcher.links.majority, self.telling.since
        if lease is None or lease.generation is None:
            return True
        watched = self.telling.watched(lease.watcher, lease.is_watched(now), lease.began, now, time.time())
        if self.telling.since != before:
            write_json(self.kept, {"version": 1, "since": self.telling.since})
        return watched

    def read_webhooks(self) -> None:
        """Read the webhooks again if `up` has changed them."""
        assert self.path is not None
        try:
            found = os.stat(self.path)
            stamp: object = (found.st_ino, found.st_mtime_ns)
        except OSError:
            stamp = None
        if stamp == self.stamp:
            return
        self.stamp, self.webhooks = stamp, {}
        with contextlib.suppress(KeyError, TypeError):
            read = [Webhook.from_json(one) for one in (read_json(self.path) or {}).get("webhooks", ())]
            self.webhooks = {webhook.key: webhook for webhook in read}
        self.lines = {key: self.lines.get(key, WebhookLine()) for key in self.webhooks}

    def send(self, webhook: Webhook, line: WebhookLine, message: Notification) -> None:
        """Begin to send a message."""
        try:
            self.posts[webhook.key] = Post(self.launcher.program or os.path.abspath(__file__), webhook, message)
            line.sends = message
        except (AttributeError, OSError) as error:  # some systems have no files in memory
            line.note(message, DeliveryResult("cannot start a process: %s" % error), boot_time())

    def take_answers(self, now: float) -> None:
        """Take note of what became of messages, and write down what was told before anything else."""
        for key, post in list(self.posts.items()):
            answer, line = post.answer(now), self.lines.get(key)
            if answer is None:
                continue
            del self.posts[key]
            message = line.sends if line is not None else None
            if line is None or message is None:
                continue
            if line.note(message, answer, now):
                self.write_told(told_of(message, key))
            else:
                note("cannot tell by %s: %s; tries again" % (key, answer.problem))

    def write_told(self, told: Sequence[Sequence[str]]) -> None:
        """Write down what launchers have told at one time, as `told_of` has it: the next supervisor reads it."""
        order, log = self.launcher.orders.order, self.launcher.story.log
        fresh = [(mark, what, channel) for mark, what, channel in told if mark not in self.telling.done]
        if not fresh or order is None or log is None:
            return
        self.telling.done.update(mark for mark, _, _ in fresh)
        begins = about(order, "told", time.time())
        log.add([{**begins, "mark": mark, "what": what, "channel": channel} for mark, what, channel in fresh])
        self.launcher.say()

    def mention(self) -> List[List[str]]:
        """Return what the next tick mentions of what launchers have told."""
        self.ticks += 1
        return mentioned(self.telling.told, self.ticks)

    def hear(self, message: PeerMessage) -> None:
        """Take note that another launcher is there, and of what it has told."""
        if self.path is None:
            return
        self.telling.hear(message, boot_time())
        self.write_told(message.told or ())

    # The good end.

    def see_off(self, order: Order) -> None:
        """Tell that the job has succeeded, before this launcher ends: the first one does.

        A supervisor that is there has this launcher finish meanwhile.
        """
        launcher, me, until = self.launcher, self.launcher.launch.node, time.monotonic() + GOOD_END
        log = launcher.story.log
        if not self.tells or log is None or me != min(member.node for member in order.of_role("trainer")):
            return
        log.add([{**about(order, "succeeded", time.time()), "reason": "all nodes ended with code 0"}])
        launcher.say()
        self.next = 0.0
        while launcher.signal is None and time.monotonic() < until and not launcher.orders.read():
            self.look(boot_time())
            if self.telling.since is not None and not any(map(self.telling.left, self.webhooks.values())):
                return
            launcher.pause(LOOK_AT_END)
