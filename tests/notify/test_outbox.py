"""When messages are sent: pauses that grow, a limit, and a summary of a storm."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from jobctl.jobspec.deploy.model.notification import Channel, DeliveryResult, Notification
from jobctl.jobspec.launcher.telling.notification import mark_of
from jobctl.jobspec.launcher.telling.storm import MINUTE, MOST_A_MINUTE
from jobctl.jobspec.launcher.telling.telling import FIRST_RETRY, LONGEST_RETRY
from jobctl.jobspec.notify.outbox import Entry, Outbox

from .tools import CHAT, HOOK

NOW = 1000.0
MAIL = replace(CHAT, key="mail to a@b", kind="email", on=frozenset({"failed"}))


def message(number: int, event: str = "recovered") -> Notification:
    return Notification(f"id{number}", "demo", "demo-1", event, NOW, 1, f"text {number}")


def box_of(*messages: Notification, channel: Channel = CHAT) -> Outbox:
    box = Outbox()
    box.add(messages, [channel])
    return box


def send(box: Outbox, channel: Channel, now: float, delivery: DeliveryResult | None = None) -> list[str]:
    """Send what is due, and return it; each gets the same answer."""
    found = box.due(channel, now)
    sent = []
    for entry in found:
        sent.append(entry.message.id if entry.message.event != "summary" else f"summary of {len(entry.message.covers)}")
        if not box.record_delivery(entry, delivery or DeliveryResult(), now):
            break
    return sent


def test_each_channel_gets_the_events_that_it_asks_for() -> None:
    box = Outbox()
    box.add([message(1), message(2, "failed")], [CHAT, MAIL])
    assert box.entries == [
        Entry(CHAT.key, message(1)),
        Entry(CHAT.key, message(2, "failed")),
        Entry(MAIL.key, message(2, "failed")),
    ]
    box.forget_others(frozenset({MAIL.key}))
    assert [entry.channel for entry in box.entries] == [MAIL.key]


def test_what_launchers_have_told_is_not_told_again() -> None:
    """Whether the record of it comes after the message, or before it: how a generation began is known late."""
    box, keys = Outbox(), (HOOK, CHAT)
    box.add([message(1)], keys)
    box.launchers_told([mark_of("id1", HOOK.key), mark_of("id2", CHAT.key)])
    box = Outbox.from_json(json.loads(json.dumps(box.to_json())))
    box.add([message(2)], keys)
    assert [(entry.message.id, entry.channel) for entry in box.entries] == [("id1", CHAT.key), ("id2", HOOK.key)]


def test_a_channel_that_does_not_answer_is_tried_after_pauses_that_grow() -> None:
    box, now, pauses = box_of(message(1), message(2)), NOW, []
    for _ in range(12):
        assert send(box, CHAT, now, DeliveryResult("no route")) == ["id1"]  # the second one has to wait
        assert send(box, CHAT, now) == []
        wait = box.next_due(now)
        assert wait is not None
        pauses.append(wait)
        assert send(box, CHAT, now + wait - 0.01) == []
        now += wait
    assert pauses[:4] == [FIRST_RETRY, 2.0, 4.0, 8.0]
    assert pauses[-1] == LONGEST_RETRY
    assert send(box, CHAT, now) == ["id1", "id2"]
    assert box.next_due(now) is None


def test_a_message_that_is_refused_keeps_no_other_back() -> None:
    box = box_of(message(1), message(2))
    first, second = box.due(CHAT, NOW)
    assert box.record_delivery(first, DeliveryResult("400", refused=True), NOW)
    assert box.record_delivery(second, DeliveryResult(), NOW)
    assert box.due(CHAT, NOW) == []
    assert box.next_due(NOW) == FIRST_RETRY
    assert send(box, CHAT, NOW + FIRST_RETRY) == ["id1"]


def test_a_webhook_says_how_long_it_wants_to_be_left_alone() -> None:
    box = box_of(message(1))
    send(box, CHAT, NOW, DeliveryResult("429", wait=30.0))
    assert box.next_due(NOW) == 30.0


def test_a_storm_becomes_one_summary() -> None:
    box = box_of(*map(message, range(MOST_A_MINUTE + 30)))
    assert send(box, CHAT, NOW) == [f"id{n}" for n in range(MOST_A_MINUTE)]
    assert send(box, CHAT, NOW + 1) == []
    box.add([message(100, "failed"), message(101)], [CHAT])
    assert send(box, CHAT, NOW + 2) == ["id100"]  # this one wakes people, and comes once
    wait = box.next_due(NOW + 2)
    assert wait == MINUTE - 2
    assert send(box, CHAT, NOW + MINUTE) == ["summary of 31"]
    assert box.next_due(NOW + MINUTE) is None
    box.add([message(200)], [CHAT])
    assert send(box, CHAT, NOW + MINUTE + 1) == ["id200"]


def test_programs_take_more() -> None:
    box = box_of(*map(message, range(MOST_A_MINUTE + 30)), channel=HOOK)
    assert len(send(box, HOOK, NOW)) == MOST_A_MINUTE + 30


@pytest.mark.parametrize("back", [0.0, 1e6])
def test_a_clock_that_is_set_back_keeps_nobody_waiting(back: float) -> None:
    box = box_of(message(1))
    send(box, CHAT, NOW + 1e6, DeliveryResult("no route"))
    assert send(box, CHAT, NOW + 1e6 - back) == ([] if back == 0 else ["id1"])


def test_it_is_kept_as_it_is() -> None:
    box = box_of(*map(message, range(MOST_A_MINUTE + 3)))
    send(box, CHAT, NOW)
    box.record_delivery(box.entries[0], DeliveryResult("no", refused=True), NOW)
    send(box, CHAT, NOW + MINUTE, DeliveryResult("no"))
    assert Outbox.from_json(json.loads(json.dumps(box.to_json()))) == box


def test_what_cannot_be_read_is_left_out() -> None:
    damaged = {
        "offset": -1,
        "told": [],
        "entries": [1, {"channel": "x"}, {"id": 3}],
        "lines": {"a": 1, "b": {"taken": 3}},
    }
    box = Outbox.from_json(damaged)
    assert (box.offset, box.entries) == (0, [])
