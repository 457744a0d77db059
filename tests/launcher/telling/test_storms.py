"""What one webhook is sent next, where launchers tell: what it refuses, a storm, and what others hear of that."""

from __future__ import annotations

from jobctl.jobspec.launcher.telling.notification import Notification
from jobctl.jobspec.launcher.telling.telling import MENTIONED, WebhookLine, mentioned
from jobctl.jobspec.launcher.telling.webhook import DeliveryResult

HOOK = "webhook HOOK (slack)"


def message(number: int, kind: str = "recovered") -> Notification:
    return Notification(f"id{number}", "demo", "demo-1", kind, 1_000_000.0, 1, f"text {number}", (number,))


def test_a_message_that_is_refused_delays_no_other() -> None:
    line, left = WebhookLine(), [message(0), message(1)]
    assert not line.note(left[0], DeliveryResult("it answered 400", refused=True), 100.0)
    assert [line.next_of(left, 9, now) for now in (100.0, 101.0)] == [left[1], left[0]]
    line.note(left[1], DeliveryResult("it answered 429", wait=40.0), 100.0)
    assert line.due == 140.0


def test_a_summary_stays_the_same_until_it_is_taken_and_covers_nothing_that_others_have_told() -> None:
    line, left = WebhookLine(), [*map(message, range(3))]
    assert line.next_of(left, 0, 100.0) is None
    assert line.next_of([*left, message(9, "failed")], 0, 100.0) == message(9, "failed")  # that waits for no minute
    summary = line.next_of(left, 1, 160.0)
    assert summary is not None
    assert (summary.event, summary.covers, summary.nodes) == ("summary", ("id0", "id1", "id2"), (0, 1, 2))
    assert summary.text == "3 events in a short time: 3 recovered. The last one: text 2"
    line.note(summary, DeliveryResult("Connection refused"), 160.0)
    left.append(message(3))
    assert line.next_of(left, 1, 170.0) == summary
    again = line.next_of(left[1:], 1, 180.0)
    assert again is not None
    assert again.covers == ("id1", "id2", "id3")


def test_a_summary_by_another_launcher_has_the_same_id() -> None:
    """Its node may know the events in another order."""
    several = [*map(message, range(3))]
    ids = set()
    for order in (several, several[::-1]):
        line = WebhookLine()
        line.next_of(order, 0, 100.0)
        summary = line.next_of(order, 1, 160.0)
        assert summary is not None
        ids.add(summary.id)
    assert len(ids) == 1


def test_ticks_mention_the_last_that_was_told_and_all_of_a_summary_in_turn() -> None:
    told = [{"event": "told", "mark": f"mark{n}", "what": "summary", "channel": HOOK} for n in range(50)]
    ticks = [mentioned(told, tick) for tick in range(1, 21)]
    assert {mark for tick in ticks for mark, _, _ in tick} == {f"mark{n}" for n in range(50)}
    assert all(len(tick) <= MENTIONED and tick[-1][0] == "mark49" for tick in ticks)
    assert mentioned(told[:2], 7) == [[f"mark{n}", "summary", HOOK] for n in range(2)]
    assert mentioned([], 1) == []
