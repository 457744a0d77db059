"""A storm of messages: how many are sent in a minute, and the summary that replaces the rest. Pure.

One for all: supervisors tell people, and launchers where no supervisor does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.telling.notification import Notification, id_of_message

if TYPE_CHECKING:
    from typing import Dict, List, Sequence, Tuple

MINUTE, MOST_A_MINUTE, MOST_FOR_PROGRAMS = 60.0, 10, 60  # messages that people get in that time, and programs
# These wait for no minute: each comes once, and ends something
URGENT_EVENTS = frozenset({"failed", "succeeded", "waiting"})


def allowed(messages: Sequence[Notification], room: int) -> Tuple[List[Notification], bool]:
    """Return what may be sent now, where there is room for so many, in its order; and whether the rest has to wait."""
    calm, room = [one.id for one in messages if one.event not in URGENT_EVENTS], max(0, room)
    now = set(calm[:room])
    return [one for one in messages if one.event in URGENT_EVENTS or one.id in now], len(calm) > room


def summed_up(messages: Sequence[Notification]) -> List[Notification]:
    """Return messages that have waited for their minute, with one summary in the place of all that may wait."""
    calm = [one for one in messages if one.event not in URGENT_EVENTS]
    if len(calm) < 2:
        return list(messages)
    return [*(one for one in messages if one.event in URGENT_EVENTS), _summary(calm)]


def _summary(several: Sequence[Notification]) -> Notification:
    last = several[-1]
    counts: Dict[str, int] = {}
    for message in several:
        counts[message.event] = counts.get(message.event, 0) + 1
    covers = tuple(ident for message in several for ident in (message.covers or (message.id,)))
    kinds = ", ".join("%d %s" % (count, event) for event, count in counts.items())
    text = "%d events in a short time: %s. The last one: %s" % (len(several), kinds, last.text)
    nodes = tuple(sorted({node for message in several for node in message.nodes}))
    ident = id_of_message("summary", *sorted(covers))  # launchers may know them in different orders
    return Notification(ident, last.job, last.run, "summary", last.at, last.generation, text, nodes, None, covers)
