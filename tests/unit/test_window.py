"""Where publishing stands: no floor moves over what is open, and what was tried in vain is tried again when it says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from orchestration.loop.health import Reason
from orchestration.loop.window import PausedDestination, SendWindow, UnknownSends

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def window(
    *,
    floor: float = -60,
    paused: dict[str, float] | None = None,
    unknown: tuple[float, float] | None = None,
    undecided: float | None = None,
) -> SendWindow:
    """All in seconds from now. paused: floors by topic; unknown: due since, and not before; undecided: since when."""
    return SendWindow(
        at(floor),
        {topic: PausedDestination(Reason("gone"), NOW, floor=at(low)) for topic, low in (paused or {}).items()},
        unknown=(UnknownSends(at(unknown[0]), at(unknown[1])),) if unknown else (),
        undecided=0 if undecided is None else 3,
        undecided_since=None if undecided is None else at(undecided),
    )


@pytest.mark.parametrize(
    ("before", "read_upto", "floor"),
    [
        (window(), 0, 0),
        (window(), -30, -30),
        (window(), -90, -60),
        (window(unknown=(-20, 60)), 0, -20),
        (window(undecided=-10), 0, -10),
        (window(unknown=(-20, 60), undecided=-40), 0, -40),
        (window(undecided=-90), 0, -60),
    ],
    ids=[
        "all is closed",
        "a step that was cut",
        "never backwards",
        "sends of unknown outcome",
        "inputs without a decision",
        "both",
        "inputs older than the floor",
    ],
)
def test_the_floor_moves_over_what_is_closed(before: SendWindow, read_upto: float, floor: float) -> None:
    assert before.moved(at(read_upto)).floor == at(floor)


@pytest.mark.parametrize(
    ("before", "since", "floor", "paused", "lowest"),
    [
        (window(), -90, -90, {}, -90),
        (window(), -10, -60, {}, -60),
        (window(paused={"a": -300, "b": -5}), -90, -90, {"a": -300, "b": -90}, -300),
        (window(paused={"a": -30}), -10, -60, {"a": -30}, -60),
    ],
)
def test_inputs_that_are_not_decided_lower_every_floor_above_them(
    before: SendWindow, since: float, floor: float, paused: dict[str, float], lowest: float
) -> None:
    after = before.awaiting(2, at(since))
    assert (after.floor, {topic: one.floor for topic, one in after.paused.items()}) == (
        at(floor),
        {t: at(low) for t, low in paused.items()},
    )
    assert (after.undecided, after.undecided_since, after.lowest_floor) == (2, at(since), at(lowest))
    assert after.all_decided().undecided_since is None


def test_more_inputs_count_together_from_the_first_of_them() -> None:
    after = window().awaiting(2, at(-5)).awaiting(3, at(-7)).awaiting(1, at(-1))
    assert (after.undecided, after.undecided_since) == (6, at(-7))


@pytest.mark.parametrize(
    ("before", "upto", "left_out", "floor", "until"),
    [
        # the rest is next
        (window(paused={"a": -300}), -240, False, -240, 0),
        # undecided inputs were left out: it is looked for again from the same floor
        (window(floor=0, paused={"a": -300}, undecided=-10), 0, True, -300, 1),
        # a send of unknown outcome is repeated when Kafka has forgotten the first
        (window(floor=0, paused={"a": -300}, unknown=(-50, 60)), 0, False, -50, 60),
        # nothing waits for it any more
        (window(floor=0, paused={"a": -300}), 0, False, None, None),
        # what is still open lies behind the loop's own floor, which does not forget it
        (window(floor=-50, paused={"a": -300}, unknown=(-50, 60)), 0, False, None, None),
    ],
    ids=["cut", "left out", "unknown", "caught up", "caught up with the loop's own floor"],
)
def test_a_paused_destination_goes_on_until_it_has_caught_up(
    before: SendWindow, upto: float, left_out: bool, floor: float | None, until: float | None
) -> None:
    after = before.after_success("a", at(upto), NOW, left_out=left_out)
    found = after.paused.get("a")
    assert (found and (found.floor, found.until)) == (None if floor is None or until is None else (at(floor), at(until)))
    assert found is None or found.reach == before.paused["a"].reach * 2
    assert after.floor == before.floor


@pytest.mark.parametrize(
    ("until", "tried"),
    [
        ({}, []),
        ({"a": 1}, []),
        ({"a": 0}, ["a"]),
        ({"a": 0, "b": 0.5, "c": 0.6}, ["a", "b"]),
        ({"a": -1, "b": -2}, ["b", "a"]),
    ],
    ids=["none", "too early", "over", "with those whose pause is half over", "the one that waits longest first"],
)
def test_paused_destinations_are_tried_together(until: dict[str, float], tried: list[str]) -> None:
    paused = {topic: PausedDestination(Reason("gone"), at(seconds), floor=NOW) for topic, seconds in until.items()}
    assert SendWindow(NOW, paused).worth_a_try(NOW) == tried


@pytest.mark.parametrize(
    ("before", "breakers", "next_due"),
    [
        (window(), None, 50),
        (window(), 20, 20),
        (window(unknown=(-5, 30)), 40, 30),
        (window(paused={"a": -300}), None, 0),
    ],
    ids=["what is due next", "a circuit breaker", "a send of unknown outcome", "a paused destination"],
)
def test_the_next_look_is_no_later_than_the_first_thing_to_try(before: SendWindow, breakers: float | None, next_due: float) -> None:
    due = replace(before, next_due=at(50))
    assert due.next_look(None if breakers is None else at(breakers)).next_due == at(next_due)
    assert due.look_now().next_look(NOW).next_due is None, "at once"


@pytest.mark.parametrize(("next_due", "now", "is_due"), [(None, 0, True), (1, 0, False), (1, 1, True), (1, 2, True)])
def test_the_wheel_is_looked_into_when_something_is_due(next_due: float | None, now: float, is_due: bool) -> None:
    assert replace(window(), next_due=None if next_due is None else at(next_due)).is_due(at(now)) is is_due


def test_sends_of_unknown_outcome_are_forgotten_when_they_may_be_sent_again() -> None:
    both = window(unknown=(-50, 10)).with_unknown(at(-20), at(60))
    assert both.without_unknown_before(at(5)).unknown == both.unknown
    assert both.without_unknown_before(at(10)).unknown == (UnknownSends(at(-20), at(60)),)
