"""How far groups are: what is settled, what only silence can tell, and a group that can't be asked. On real groups: tests/loop."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from orchestration.kafka.cluster import ClusterError
from orchestration.loop.completeness import Completeness
from orchestration.loop.consumer_progress import Awaited, Consumers, Place

ALL, NOTHING = Completeness(), Completeness(decided=False)

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
SETTLE = timedelta(seconds=30)


class Groups:
    """A cluster that says what groups have committed, and counts how often it was asked; None: no answer."""

    def __init__(self, **committed: int | None) -> None:
        self.said = committed
        self.asked: list[str] = []

    def keep_only(self, groups: object) -> None:
        """Nothing is kept."""

    def committed(self, group: str, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        self.asked.append(group)
        offset = self.said.get(group, -1)
        if offset is None:
            raise ClusterError(f"Kafka did not say how far the consumer group {group} is")
        return {where: offset for where in partitions if offset >= 0}


def watching(groups: Groups) -> Consumers:
    """Ten records were sent to each group of `groups`."""
    consumers = Consumers(cast(Any, None), "redrive", cast(Any, groups), SETTLE, looked=1)
    consumers.remember(Awaited(place(group), 10, 0) for group in groups.said)
    return consumers


def sent(consumers: Consumers, group: str, offset: int) -> None:
    """One more record was sent to a group."""

    class Results:
        def sql(self, _: str) -> Results:
            return self

        def collect(self) -> list[dict[str, Any]]:
            return [{"consumer_group": group, "topic": "retries", "partition": 0, "sent": offset + 1}]

    consumers.spark = cast(Any, Results())


def place(group: str) -> Place:
    return Place(group, "retries", 0)


def test_what_is_committed_is_settled_when_no_report_came_for_a_while() -> None:
    consumers = watching(Groups(billing=10))
    assert consumers.look(BEGAN, 1, complete=ALL) == {}
    assert consumers.look(BEGAN + SETTLE, 1, complete=NOTHING) == {}
    assert consumers.look(BEGAN + SETTLE * 2, 1, complete=ALL) == {place("billing"): 10}
    assert consumers.state() == []


def test_a_group_that_cannot_be_asked_keeps_no_other_from_being_settled_and_is_left_alone_for_a_while() -> None:
    groups = Groups(billing=10, secret=None)
    consumers = watching(groups)
    consumers.look(BEGAN, 1, complete=ALL)
    assert list(consumers.unanswered) == ["secret"]
    assert consumers.look(BEGAN + SETTLE - timedelta(seconds=1), 1, complete=ALL) == {}
    assert groups.asked.count("secret") == 1
    assert consumers.look(BEGAN + SETTLE * 2, 1, complete=ALL) == {place("billing"): 10}
    assert groups.asked.count("secret") == 2
    groups.said["secret"] = 10
    consumers.look(BEGAN + SETTLE * 3, 1, complete=ALL)
    assert consumers.unanswered == {}
    assert consumers.look(BEGAN + SETTLE * 4, 1, complete=ALL) == {place("secret"): 10}


def test_a_look_waits_for_one_silent_group_at_most_and_asks_those_that_answer_first() -> None:
    groups = Groups(a=None, b=10, c=None, d=10)
    consumers = watching(groups)
    looks = [BEGAN + SETTLE * n for n in range(4)]
    for now in looks:
        groups.asked.clear()
        consumers.look(now, 1, complete=NOTHING)
        assert len([group for group in groups.asked if groups.said[group] is None]) <= 1
    assert groups.asked == ["b", "d", "a"]
    assert sorted(consumers.unanswered) == ["a", "c"]


def test_a_group_that_gave_no_answer_is_not_silent() -> None:
    groups = Groups(quiet=-1, away=None)
    consumers = watching(groups)
    assert not consumers.is_silent(place("quiet"), BEGAN)
    later = BEGAN + SETTLE / 2
    for now in (BEGAN, later):
        consumers.look(now, 1, complete=ALL)
    assert consumers.is_silent(place("quiet"), later)
    assert not consumers.is_silent(place("away"), later)
    assert not consumers.is_silent(place("quiet"), later + timedelta(seconds=1)), "it was not asked since"
    groups.said["away"] = -1
    consumers.look(BEGAN + SETTLE * 2, 1, complete=ALL)
    assert consumers.is_silent(place("away"), BEGAN + SETTLE * 2)


def test_a_source_that_is_not_read_keeps_only_what_it_speaks_for_from_being_settled() -> None:
    consumers = watching(Groups(billing=10, shipping=10))
    consumers._awaited[place("billing")].origins = frozenset({"orders"})
    consumers._awaited[place("shipping")].origins = frozenset({"orders", "parcels"})
    unread = Completeness(frozenset({"^parcel"}))
    consumers.look(BEGAN, 1, complete=unread)
    assert consumers.look(BEGAN + SETTLE * 2, 1, complete=unread) == {place("billing"): 10}
    assert consumers.look(BEGAN + SETTLE * 4, 1, complete=unread) == {}
    assert consumers.look(BEGAN + SETTLE * 6, 1, complete=ALL) == {place("shipping"): 10}


def test_groups_that_commit_nothing_are_asked_less_and_less_often_and_forgotten_after_a_day() -> None:
    groups = Groups(**{f"pod-{number}": -1 for number in range(50)}, billing=5)
    consumers = watching(groups)
    now, looks = BEGAN, SETTLE / 6
    asked: list[int] = []
    while len(consumers.state()) > 1 and now < BEGAN + timedelta(days=2):
        groups.asked.clear()
        consumers.look(now, 1, complete=ALL)
        assert groups.asked.count("billing") == 1, "it has not got as far as what it was sent"
        asked.append(len(groups.asked) - 1)
        now += looks
    # at first with every look; then after a tenth of the time; at last each ten minutes
    assert asked[0] == 50
    assert sum(asked[: timedelta(minutes=10) // looks]) < 50 * 60
    assert sum(asked[timedelta(hours=12) // looks : timedelta(hours=13) // looks]) == 50 * 6
    assert now - BEGAN > timedelta(days=1)
    assert [row.place.consumer_group for row in consumers.state()] == ["billing"]
    # what is silent may have succeeded: that is all that will be known of it
    assert consumers.is_silent(place("pod-7"), BEGAN)


def test_a_quiet_group_is_asked_at_once_when_it_is_sent_something_and_when_it_commits_all_is_settled() -> None:
    groups = Groups(pod=-1)
    consumers = watching(groups)
    now = BEGAN
    for _ in range(20):
        now += timedelta(hours=1)
        consumers.look(now, 1, complete=ALL)
    now += timedelta(minutes=1)
    groups.asked.clear()
    consumers.look(now, 1, complete=ALL)
    assert groups.asked == []
    sent(consumers, "pod", 11)
    consumers.look(now + SETTLE, 2, complete=ALL)
    assert groups.asked == ["pod"]
    groups.said["pod"] = 12
    consumers.look(now + SETTLE * 2, 2, complete=ALL)
    assert consumers.look(now + SETTLE * 3, 2, complete=ALL) == {place("pod"): 12}
    assert consumers.state() == []


def test_where_order_matters_a_group_that_is_away_is_not_forgotten_and_a_commit_settles_at_the_next_look() -> None:
    groups = Groups(billing=-1)
    consumers = watching(groups)
    consumers.reports_first = lambda group, topics: (group, set(topics)) == ("billing", {"orders"})
    consumers._awaited[place("billing")].origins = frozenset({"orders"})
    now = BEGAN
    while now < BEGAN + timedelta(days=2):
        assert consumers.look(now, 1, complete=ALL) == {}
        now += timedelta(minutes=10)
    groups.said["billing"] = 10
    assert consumers.look(now, 1, complete=ALL) == {}
    assert consumers.look(now + timedelta(seconds=1), 1, complete=ALL) == {place("billing"): 10}
