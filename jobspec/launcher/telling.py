"""What launchers tell people by themselves, where nobody watches: which messages, when, and which of them does. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.event_log import key_of
from jobctl.jobspec.launcher.lease import TICK
from jobctl.jobspec.launcher.news import News
from jobctl.jobspec.launcher.notification import mark_of
from jobctl.jobspec.launcher.records import record
from jobctl.jobspec.launcher.words import EVENT_WORDS, id_of

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, List, Optional, Sequence, Set, Tuple

    from jobctl.jobspec.launcher.files import Json
    from jobctl.jobspec.launcher.notification import Notification
    from jobctl.jobspec.launcher.peer_messages import PeerMessage
    from jobctl.jobspec.launcher.webhook import WebhookAnswer

TELLS = 2  # launchers that tell: the first one, and another one what that has not told after …
TAKES_OVER = 30.0  # seconds
LASTING = 60.0  # seconds for which launchers have waited before people are told so: a host may be back in a moment
HEARD = 2.5 * TICK  # seconds after which a launcher counts as not heard
# Of these, supervisors have the same.
FIRST_RETRY, LONGEST_RETRY = 1.0, 300.0  # seconds before what was not taken is tried again, at first and at last
MINUTE, MOST_A_MINUTE = 60.0, 10  # messages that people get in that time
AT_ONCE = frozenset({"failed", "succeeded", "waiting"})  # these wait for no minute: each comes once, and ends something
MENTIONED = 8  # messages that launchers have told, which a tick mentions


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


class WebhookLine:
    """How a webhook fares: what is being sent, and when it may be tried again. Times are those of `boot_time`."""

    def __init__(self) -> None:
        self.sends: Optional[Notification] = None
        self.due, self.pause = 0.0, 0.0
        self.refused: Dict[str, Tuple[float, float]] = {}  # by ids of messages: the same for each
        self.taken: List[float] = []

    def is_free(self, message: Notification, now: float) -> bool:
        """Say whether a message may be sent now."""
        recent = [at for at in self.taken if now - at < MINUTE]
        room = message.event in AT_ONCE or len(recent) < MOST_A_MINUTE
        return room and self.refused.get(message.id, (0.0, 0.0))[0] <= now

    def note(self, message: Notification, answer: WebhookAnswer, now: float) -> bool:
        """Take note of what became of a message; say whether it was taken."""
        self.sends = None
        if answer.problem is None:
            self.taken = [at for at in self.taken if now - at < MINUTE] + [now]
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


def mentioned(events: Sequence[Json]) -> List[List[str]]:
    """Return what launchers have told last, as ticks mention it: mark, event and webhook."""
    told = [event for event in events if event.get("event") == "told"]
    return [[str(event.get(name)) for name in ("mark", "what", "channel")] for event in told[-MENTIONED:]]


class Telling:
    """What one launcher knows of what people have to know.

    `since` is since when nobody watches, in seconds since the epoch, None while somebody does: what was before that, the
    next supervisor tells. `done` are the marks of what launchers have told, this one or others.
    """

    def __init__(self, node: int, since: Optional[float]) -> None:
        self.node, self.since = node, since
        self.done: Set[str] = set()
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
        self.done |= {str(event.get("mark")) for event in events if event.get("event") == "told"}
        self.news = News(job, run, by_launchers=True)
        self.news.read(readable(events))
        for message in self.news.found:
            self.seen.setdefault(message.id, now)

    def place(self, message: Notification, failed: bool, now: float) -> int:
        """Return how many launchers that are there tell a message before this one.

        Not all find out that they wait: those whose nodes have failed, mostly. So of these the first one tells.
        """
        there = [(node, broken) for node, (at, broken) in self.heard.items() if now - at <= HEARD]
        return sum(node < self.node and (message.event != "waiting" or broken == failed) for node, broken in there)

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
        left = (one for one in self.left(webhook) if line.is_free(one, now))
        return next((one for one in left if self.is_mine(one, failed, now, wall)), None)

    def left(self, webhook: Webhook) -> List[Notification]:
        """Return what nobody has told a webhook of what happened since nobody watches."""
        found = self.news.found if self.news is not None and self.since is not None else []
        mine = [one for one in found if one.event in webhook.on and one.at >= (self.since or 0.0)]
        return [one for one in mine if mark_of(one.id, webhook.key) not in self.done]
