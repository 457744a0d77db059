"""What launchers tell people by themselves, where nobody watches: which messages, when, and which of them does. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.peers.lease import SILENT_TICKS, TICK
from jobctl.jobspec.launcher.records import record
from jobctl.jobspec.launcher.report.event_log import key_of
from jobctl.jobspec.launcher.telling.news import News
from jobctl.jobspec.launcher.telling.notification import mark_of
from jobctl.jobspec.launcher.telling.storm import MINUTE, MOST_A_MINUTE, MOST_FOR_PROGRAMS, allowed, summed_up
from jobctl.jobspec.launcher.telling.words import EVENT_WORDS, id_of

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, List, Optional, Sequence, Set, Tuple

    from jobctl.jobspec.launcher.peers.messages import PeerMessage
    from jobctl.jobspec.launcher.system.files import Json
    from jobctl.jobspec.launcher.telling.notification import Notification
    from jobctl.jobspec.launcher.telling.webhook import DeliveryResult

TELLS = 2  # launchers that tell: the first one, and another one what that has not told after …
TAKES_OVER = 30.0  # seconds
LASTING = 60.0  # seconds for which launchers have waited before people are told so: a host may be back in a moment
HEARD_SECONDS = SILENT_TICKS * TICK  # seconds after which a launcher counts as not heard
# Of these, supervisors have the same.
FIRST_RETRY, LONGEST_RETRY = 1.0, 300.0  # seconds before what was not taken is tried again, at first and at last
MENTIONED = 8  # messages that launchers have told, which one tick mentions
LATELY = 64  # the last of them, which ticks mention in turn


@record
class Webhook:
    """A webhook whose URL may be on the hosts. `key` names it without that."""

    key: str
    on: FrozenSet[str]
    url: str
    format: str

    @classmethod
    def from_json(cls, data: Json) -> Webhook:
        """Return what jobctl has written. Raises KeyError or TypeError."""
        return cls(str(data["key"]), frozenset(map(str, data["on"])), str(data["url"]), str(data["format"]))

    @property
    def most(self) -> int:
        """How many messages it gets in a minute."""
        return MOST_FOR_PROGRAMS if self.format == "json" else MOST_A_MINUTE


class WebhookLine:
    """How a webhook fares: what is being sent, and when it may be tried again. Times are those of `boot_time`."""

    def __init__(self) -> None:
        self.sends: Optional[Notification] = None
        self.due, self.pause = 0.0, 0.0
        self.refused: Dict[str, Tuple[float, float]] = {}  # by ids of messages: the same for each
        self.holds = False  # whether messages have to wait for their minute
        self.summary: Optional[Notification] = None  # of those: the same until it is taken

    def next_of(self, left: Sequence[Notification], room: int, now: float) -> Optional[Notification]:
        """Return which of the messages that are left is to be sent now, None for none; a storm becomes a summary first."""
        left = self.with_summary(left, room)
        free, waits = allowed([one for one in left if self.refused.get(one.id, (0.0, 0.0))[0] <= now], room)
        self.holds = self.holds or (waits and room <= 0)  # until then each has its turn
        return free[0] if free else None

    def with_summary(self, left: Sequence[Notification], room: int) -> List[Notification]:
        """Return the messages that are left, with a summary in the place of those that had to wait, once there is room."""
        ids = {one.id for one in left}
        if self.summary is not None and not ids.issuperset(self.summary.covers):  # somebody has told some of them
            self.summary, self.holds = None, True
        if self.summary is None and self.holds and room > 0:
            self.holds = False
            self.summary = next((one for one in summed_up(left) if one.id not in ids), None)
        if self.summary is None:
            return list(left)
        return [self.summary, *(one for one in left if one.id not in self.summary.covers)]

    def note(self, message: Notification, answer: DeliveryResult, now: float) -> bool:
        """Take note of what became of a message; say whether it was taken."""
        self.sends = None
        if answer.done:
            self.pause = self.due = 0.0
            return True
        wait = min(answer.wait or 0.0, LONGEST_RETRY)
        if answer.refused:  # the next one may be better
            pause = longer(self.refused.get(message.id, (0.0, 0.0))[1])
            self.refused[message.id] = now + max(pause, wait), pause
        else:
            self.pause = longer(self.pause)
            self.due = now + max(self.pause, wait)
        return False


def longer(pause: float) -> float:
    """Return the pause after a pause."""
    return min(max(FIRST_RETRY, 2 * pause), LONGEST_RETRY)


def readable(events: Sequence[Json]) -> List[Json]:
    """Return what launchers have kept with the words and the ids that jobctl gives it, in the order in which they knew it.

    Their clocks differ: by its time, a node may have failed before the generation began in which it did.
    """
    found = []
    for event in events:
        words, key = EVENT_WORDS.get(str(event.get("event"))), key_of(event)
        if words is not None and key is not None:
            found.append({**event, "message": words(event), "id": id_of(float(event["began"]), key)})
    return found


def told_of(message: Notification, webhook: str) -> List[List[str]]:
    """Return what to keep of a message that a webhook has taken: mark, event and webhook, for each that a summary covers."""
    return [[mark_of(ident, webhook), message.event, webhook] for ident in message.covers or (message.id,)]


def mentioned(told: Sequence[Json], tick: int) -> List[List[str]]:
    """Return what tick number `tick` mentions of what launchers have told, as `told_of` does.

    That is the last of it, and of what was before that some, in turn: a summary tells much at once.
    """
    half = MENTIONED // 2
    before = told[-LATELY:-half]
    turns = (len(before) + half - 1) // half
    at = tick % turns * half if turns else 0
    chosen = [*before[at : at + half], *told[-half:]]
    return [[str(event.get(name)) for name in ("mark", "what", "channel")] for event in chosen]


class Telling:
    """What one launcher knows of what people have to know.

    `since` is since when nobody watches, in seconds since the epoch, None while somebody does: what was before that, the
    next supervisor tells. `done` are the marks of what launchers have told, this one or others.
    """

    def __init__(self, node: int, since: Optional[float]) -> None:
        self.node, self.since = node, since
        self.done: Set[str] = set()
        self.told: List[Json] = []  # the events that say so
        self.news: Optional[News] = None
        self.seen: Dict[str, float] = {}  # when each message was found
        # When other launchers were heard, and whether their nodes have failed.
        self.heard: Dict[int, Tuple[float, bool]] = {}

    def hear(self, message: PeerMessage, now: float) -> None:
        """Take note that another launcher is there: in whatever order, and whether it has a lease or not."""
        if message.tick is not None and message.spare is None:
            self.heard[message.node] = now, message.failed is not None

    def watched(self, heard: Optional[float], supervised: bool, began: float, now: float, wall: float) -> bool:
        """Take note whether somebody watches; say whether this launcher is to tell nothing now.

        `heard` is when the supervisor was heard last since `began`, in the time of `now`; `wall` is the time of day.
        """
        if heard is not None and supervised:
            self.since = None
        elif not supervised and self.since is None:
            self.since = wall - (now - (began if heard is None else heard))
        return supervised or self.since is None

    def read(self, job: str, run: str, events: Sequence[Json], now: float) -> None:
        """Find out from the events of this node what people have to know."""
        self.told = [event for event in events if event.get("event") == "told"]
        self.done |= {str(event.get("mark")) for event in self.told}
        self.news = News(job, run, by_launchers=True)
        self.news.read(readable(events))
        for message in self.news.found:
            self.seen.setdefault(message.id, now)

    def place(self, message: Notification, failed: bool, now: float) -> int:
        """Return how many launchers that are there tell a message before this one.

        Not all find out that they wait: those whose nodes have failed, mostly. So of these the first one tells.
        """
        before = self.before(now)
        return before.count(failed) if message.event == "waiting" else len(before)

    def before(self, now: float) -> List[bool]:
        """Return of each launcher that is there, and comes before this one, whether its node has failed."""
        return [broken for node, (at, broken) in self.heard.items() if node < self.node and now - at <= HEARD_SECONDS]

    def room(self, webhook: Webhook, now: float, wall: float) -> int:
        """Return how many more messages a webhook may get now from all launchers together.

        After a minute there is room again; for other launchers than the first one, later: that one sends the summary.
        """
        window = MINUTE + len(self.before(now)) * TAKES_OVER
        times = {event["time"] for event in self.told if event.get("channel") == webhook.key}  # of a summary, one
        return webhook.most - len([at for at in times if 0 <= wall - at < window])

    def is_mine(self, message: Notification, failed: bool, now: float, wall: float) -> bool:
        """Say whether this launcher is to tell a message now, or has to later unless another one does."""
        if self.news is None:
            return False
        place = self.place(message, failed, now)
        known, least = now - self.seen[message.id], place * TAKES_OVER
        if message.event == "waiting":
            known, least = wall - message.at, least + LASTING
            if self.news.told.waiting != message.text:
                return False
        return place < TELLS and known >= least

    def next_of(
        self, webhook: Webhook, line: WebhookLine, failed: bool, now: float, wall: float
    ) -> Optional[Notification]:
        """Return what is to be sent to a webhook now, None for nothing."""
        if line.sends is not None or line.due > now:
            return None
        mine = [one for one in self.left(webhook) if self.is_mine(one, failed, now, wall)]
        return line.next_of(mine, self.room(webhook, now, wall), now)

    def left(self, webhook: Webhook) -> List[Notification]:
        """Return what nobody has told a webhook of what happened since nobody watches."""
        found = self.news.found if self.news is not None and self.since is not None else []
        mine = [one for one in found if one.event in webhook.on and one.at >= (self.since or 0.0)]
        return [one for one in mine if mark_of(one.id, webhook.key) not in self.done]
