"""The generation fence: a task sends nothing once a newer loop is in charge, and a loop never takes charge from a newer one.

What only a real broker does (transactions on offsets, fencing) is tested in tests/loop/test_publisher_on_a_broker.py.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from publisher import (
    PublisherSettings,
    SessionLostError,
    SupersededError,
    generation,
    renew_charge,
    take_charge,
)
from publisher.clients import make_keeper
from publisher.contract import SUPERSEDED_CODE, superseded_message
from publisher.errors import Concerns, ErrorKind, Trouble
from publisher.generation import mark
from tests.unit.publisher_kit.mock_cluster import Api, MockCluster
from tests.unit.publisher_kit.rows import outcomes, ready, send, settings_for, stops

GROUP = "redrive.default"


@pytest.fixture
def kafka(mock_cluster: MockCluster) -> MockCluster:
    """A mock cluster with a destination `t` and two sources."""
    for topic in ("t", "s1", "s2"):
        mock_cluster.create(topic)
    return mock_cluster


def of_generation(number: int, kafka: MockCluster, **changes: Any) -> PublisherSettings:
    defaults: dict[str, Any] = {"fence_topics": ("s1", "gone", "s2")}
    return settings_for(kafka.bootstrap, generation=number, **{**defaults, **changes})


@pytest.mark.parametrize(
    ("written", "by"),
    [
        ({}, None),
        ({"s1": "generation 6"}, None),
        ({"s1": "generation 7"}, None),
        ({"s1": "generation 8"}, 8),
        ({"s1": "generation 6", "s2": "generation 10"}, 10),
        ({"s1": "generation 10", "s2": "generation 9"}, 10),
        # somebody else's offsets
        ({"s1": "", "s2": "99"}, None),
        ({"s1": "generation nine", "s2": "my generation 9"}, None),
    ],
)
def test_a_task_sends_unless_a_higher_generation_is_written(kafka: MockCluster, written: dict[str, str], by: int | None) -> None:
    for topic, metadata in written.items():
        kafka.commit(GROUP, topic, metadata)

    # a loop that is superseded charges nothing, whatever the route says
    results = send([{"topic": "t", "publish_charge": "all"}] * 2, of_generation(7, kafka))

    if by is None:
        assert outcomes(results) == {"d0": "delivered", "d1": "delivered"}
        return
    assert (outcomes(results), kafka.end("t")) == ({}, 0)
    (row,) = results
    assert (row["outcome"], row["topic"], row["error_code"], row["error_name"]) == ("stopped", None, SUPERSEDED_CODE, "SUPERSEDED")
    assert (row["error_kind"], row["error_message"]) == ("fenced", f"generation {by} has taken over from generation 7")


def test_another_instance_s_generation_is_none_of_ours(kafka: MockCluster) -> None:
    kafka.commit("redrive.other", "s1", "generation 8")

    assert outcomes(send([{"topic": "t"}], of_generation(7, kafka))) == {"d0": "delivered"}


@pytest.mark.parametrize(
    ("codes", "stop"),
    [
        ([14], None),
        ([15, 16, 14], None),
        ([88, 88, 88], None),
        # no permission on the group
        ([30], (None, 30, "fatal")),
        # longer than a question may take
        ([15] * 100, (None, 15, "retriable")),
    ],
    ids=["loading", "moving", "being written", "forbidden", "away"],
)
def test_nothing_is_sent_before_the_generation_is_read(kafka: MockCluster, codes: list[int], stop: Any) -> None:
    kafka.fail(Api.OFFSET_FETCH, *codes)

    results = send([{"topic": "t"}], of_generation(7, kafka, metadata_timeout_ms=1_500))

    assert outcomes(results) == ({} if stop else {"d0": "delivered"})
    assert stops(results) == ([stop] if stop else [])
    assert not stop or (kafka.end("t") == 0 and GROUP in results[-1]["error_message"])


def test_the_generation_is_read_after_the_init_and_before_the_first_send(kafka: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    highest = generation._highest

    def look(offsets: Any) -> Any:
        read.append(kafka.end("t"))
        return highest(offsets)

    monkeypatch.setattr(generation, "_highest", look)
    kafka.fail(Api.INIT_PRODUCER_ID, 53)
    send([{"topic": "t"}], of_generation(7, kafka))
    assert read == []

    send([{"topic": "t"}] * 3, of_generation(7, kafka, max_rows=1))
    assert read == [0]


@pytest.mark.parametrize(
    "script",
    [lambda kafka: kafka.fail(Api.PRODUCE, 47), lambda kafka: kafka.fail(Api.ADD_PARTITIONS_TO_TXN, 90)],
    ids=["while sending", "while joining"],
)
def test_a_fence_by_a_newer_loop_says_so(
    kafka: MockCluster, script: Callable[[MockCluster], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter([(7, 0), (8, 0)])
    monkeypatch.setattr(generation, "_highest", lambda *_: next(numbers))
    script(kafka)

    results = send([{"topic": "t"}], of_generation(7, kafka))

    assert stops(results) == [(None, SUPERSEDED_CODE, "fenced")]
    assert outcomes(results) == {}


@pytest.mark.parametrize(("found", "sends"), [((7, 0), True), ((7, 2), True), ((7, 3), False), ((8, 0), False)])
def test_what_a_loop_has_given_up_sends_nothing_after_a_later_fence(
    kafka: MockCluster, monkeypatch: pytest.MonkeyPatch, found: tuple[int, int], sends: bool
) -> None:
    monkeypatch.setattr(generation, "_highest", lambda *_: found)

    results = send([{"topic": "t"}], of_generation(7, kafka, fence=2))

    assert (outcomes(results), stops(results)) == (({"d0": "delivered"}, []) if sends else ({}, [(None, SUPERSEDED_CODE, "fenced")]))


def test_a_commit_that_a_newer_loop_fenced_is_unknown_and_says_so(kafka: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter([(7, 0), (8, 0)])
    monkeypatch.setattr(generation, "_highest", lambda *_: next(numbers))
    kafka.fail(Api.END_TXN, 90)

    results = send([{"topic": "t"}], of_generation(7, kafka))

    assert outcomes(results) == {"d0": "unknown"}
    assert stops(results) == [(None, SUPERSEDED_CODE, "fenced")]


def test_charge_is_not_taken_from_a_newer_loop(kafka: MockCluster) -> None:
    kafka.commit(GROUP, "s2", "generation 8")

    with pytest.raises(SupersededError, match="generation 8 has taken over from generation 7") as raised:
        take_charge(of_generation(7, kafka), ["s1"], slots=1)

    assert raised.value.by == 8


def test_a_loop_in_charge_writes_its_number_again_unless_a_newer_one_is_there(kafka: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, written = of_generation(7, kafka, fence_topics=("s1", "s2")), list[int]()
    # what a transaction has written can't be read of this cluster: tests/loop/test_publisher_on_a_broker.py does
    monkeypatch.setattr(generation, "_await_written", lambda settings: written.append(settings.generation))
    renew_charge(settings)
    assert written == [7]
    kafka.commit(GROUP, "s2", "generation 8")
    with pytest.raises(SupersededError):
        renew_charge(settings)
    renew_charge(of_generation(7, kafka, fence_topics=()))


def test_a_newer_loop_that_writes_at_the_same_time_wins(kafka: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka.fail(Api.ADD_OFFSETS_TO_TXN, 90)
    group = generation._group

    def taken_over(*arguments: Any) -> Any:
        """After the number was read, before it is written."""
        kafka.commit(GROUP, "s1", "generation 8")
        return group(*arguments)

    monkeypatch.setattr(generation, "_group", taken_over)

    with pytest.raises(SupersededError):
        take_charge(of_generation(7, kafka), ["s1", "s2"], slots=1)


def test_a_fence_by_nobody_in_particular_is_tried_once_more(kafka: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka.fail(Api.ADD_OFFSETS_TO_TXN, 90)
    monkeypatch.setattr(generation, "_await_written", lambda _: None)

    assert take_charge(of_generation(7, kafka), ["s1"], slots=1) is True

    kafka.fail(Api.ADD_OFFSETS_TO_TXN, 90, 90)
    with pytest.raises(SessionLostError) as raised:
        take_charge(of_generation(7, kafka), ["s1"], slots=1)
    assert raised.value.trouble.error.kind == "fenced"


@pytest.mark.parametrize("topics", [[], ["missing"], ["not legal"]])
def test_without_a_topic_to_keep_the_number_in_only_the_slots_are_taken(kafka: MockCluster, topics: list[str]) -> None:
    assert take_charge(of_generation(7, kafka, fence_topics=("gone",)), topics, slots=2) is False


def test_a_number_that_can_not_be_read_afterwards_is_no_success(kafka: MockCluster) -> None:
    # The mock keeps nothing that a transaction commits.
    with pytest.raises(SessionLostError, match="is not there"):
        take_charge(of_generation(7, kafka), ["s1"], slots=1)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (lambda kafka: kafka.fail(Api.INIT_PRODUCER_ID, 53), 53),
        (lambda kafka: kafka.fail(Api.ADD_OFFSETS_TO_TXN, 30), 30),
        (lambda kafka: kafka.fail(Api.OFFSET_FETCH, 30), 30),
        (lambda kafka: kafka.delay(Api.END_TXN, 30_000), KafkaError._TIMED_OUT),
    ],
    ids=["no permission on the id", "no permission to write", "no permission to read", "no answer"],
)
def test_trouble_while_taking_charge_is_told(kafka: MockCluster, script: Callable[[MockCluster], None], code: int) -> None:
    script(kafka)

    with pytest.raises(SessionLostError) as raised:
        take_charge(of_generation(7, kafka), ["s1"], slots=1)

    assert raised.value.trouble.error.code == code


def test_trouble_with_any_slot_is_told(kafka: MockCluster) -> None:
    kafka.fail(Api.INIT_PRODUCER_ID, 0, 0, 53)

    with pytest.raises(SessionLostError) as raised:
        take_charge(of_generation(7, kafka, fence_topics=()), [], slots=3)

    assert raised.value.trouble.error.code == 53


def test_charge_can_not_be_taken_of_a_cluster_that_is_away() -> None:
    with pytest.raises(SessionLostError):
        take_charge(settings_for("127.0.0.1:1", metadata_timeout_ms=500), ["s1"], slots=1)


def test_the_mark_looks_like_no_consumer_that_is_late() -> None:
    where = mark("s1", 8)

    assert (where.topic, where.partition, where.metadata) == ("s1", 0, "generation 8")
    assert mark("s1", 8, 3).metadata == "generation 8 fence 3"
    assert 2**53 < where.offset < 2**63


def test_a_takeover_travels_pickled() -> None:
    trouble = Trouble(ErrorKind(SUPERSEDED_CODE, "SUPERSEDED", "fenced", Concerns.CONNECTION), superseded_message(7, 8))

    error = pickle.loads(pickle.dumps(SupersededError(trouble, 8)))

    assert (str(error), error.by, error.trouble) == ("generation 8 has taken over from generation 7", 8, trouble)


def test_without_topics_to_look_at_nothing_is_asked(kafka: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka.commit(GROUP, "s1", "generation 8")
    monkeypatch.setattr(generation, "make_keeper", None)

    assert outcomes(send([{"topic": "t"}], of_generation(7, kafka, fence_topics=()))) == {"d0": "delivered"}


def test_the_client_that_reads_is_kept_until_it_fails(kafka: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def noted(*arguments: Any) -> Any:
        made.append(1)
        return make_keeper(*arguments)

    monkeypatch.setattr(generation, "make_keeper", noted)
    for _ in range(3):
        send([{"topic": "t"}], of_generation(7, kafka))
    assert len(made) == 1

    kafka.fail(Api.OFFSET_FETCH, 30)
    for _ in range(3):
        send([{"topic": "t"}], of_generation(7, kafka))
    assert len(made) == 2


def test_rows_that_are_all_settled_before_sending_need_no_generation(kafka: MockCluster) -> None:
    kafka.fail(Api.OFFSET_FETCH, 30)

    assert outcomes(send([ready([{"topic": "not legal"}])], of_generation(7, kafka))) == {"d0": "failed"}
