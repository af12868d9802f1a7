"""Each delivery is in its topic once, whatever happens between the commit of a send and the append of its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from orchestration.loop.health import FIRST_PAUSE
from orchestration.loop.lane import TimedLane
from orchestration.loop.published import ResultsLostError
from orchestration.loop.sending import BulkLane
from publisher import sending
from tests.loop.death import Died, die, start_after_death, until_it_dies
from tests.loop.harness import Redrive, deliveries


@pytest.fixture
def ahead(redrive: Redrive) -> Iterator[Redrive]:
    """A loop whose timed lane sends."""
    redrive.restart(look_ahead_seconds=60.0)
    yield redrive
    redrive.restart(look_ahead_seconds=0.0)


def found_by(redrive: Redrive, domain: str) -> list[tuple[str, str, str | None]]:
    """Kind, outcome and finder of each result of a domain, in the order of the batches."""
    rows = redrive.sql(f"select * from publish_results where original_topic = '{domain}.orders' order by batch, original_offset")
    return [(row["kind"], row["outcome"], row["found_by"]) for row in rows]


def fails(redrive: Redrive, domain: str, count: int, **how: Any) -> None:
    """So many messages of a new domain fail."""
    redrive.domain(domain, partitions=2)
    for number in range(count):
        redrive.fails(f"{domain}.orders", b"%d" % number, b"v", **how)


def assert_sent_once(redrive: Redrive, domain: str, count: int, topic: str = "orders-billing-retry") -> None:
    """So many deliveries lie in a topic, each once, and no more follow."""
    redrive.settle()
    assert list(deliveries(redrive.read(f"{domain}.{topic}")).values()) == [1] * count


def test_killed_after_a_commit_the_next_loop_finds_what_was_sent(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(BulkLane, "record", die)
        fails(redrive, "oncekill", 3)
        fails(redrive, "oncekilldead", 2, error="KeyError")
        until_it_dies(redrive)
    # it sends what was not sent by then, which depends on when the reports came in
    start_after_death(redrive)
    redrive.retries("oncekill", 3)
    redrive.dead("oncekilldead", 2)
    assert_sent_once(redrive, "oncekill", 3)
    assert_sent_once(redrive, "oncekilldead", 2, "orders.dlq")
    found = [*found_by(redrive, "oncekill"), *found_by(redrive, "oncekilldead")]
    assert {outcome for _, outcome, _ in found} == {"delivered"}
    assert "read_back" in {finder for _, _, finder in found}


@pytest.mark.slow
def test_a_failure_of_what_a_killed_loop_has_sent_is_its_answer_also_if_it_names_the_original_record(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    redrive.domain("onceanswer")
    original = redrive.fails("onceanswer.orders", b"k", b"v")
    with monkeypatch.context() as patch:
        patch.setattr(BulkLane, "record", die)
        until_it_dies(redrive)
    assert len(redrive.read("onceanswer.orders-billing-retry")) == 1
    # the consumer's framework drops headers that it doesn't know
    redrive.report(original)
    start_after_death(redrive)
    (_, answer) = redrive.decided("onceanswer", 2)
    assert (answer["decision"], answer["attempt"]) == ("retry", 2)
    redrive.retries("onceanswer", 2)
    assert_sent_once(redrive, "onceanswer", 2)


@pytest.mark.slow
def test_killed_again_before_it_reads_back_the_loop_after_it_does(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    fails(redrive, "onceagain", 2)
    with monkeypatch.context() as patch:
        patch.setattr(BulkLane, "record", die)
        until_it_dies(redrive)
    with monkeypatch.context() as patch:
        patch.setattr("orchestration.loop.read_back.ReadBack._ranges", die)
        with pytest.raises(Died):
            start_after_death(redrive)
    start_after_death(redrive)
    redrive.retries("onceagain", 2)
    assert_sent_once(redrive, "onceagain", 2)


@pytest.mark.long
@pytest.mark.parametrize("hides", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_destination_that_cannot_be_read_back_waits_and_the_others_do_not(
    redrive: Redrive, kafka: dict[str, str], monkeypatch: pytest.MonkeyPatch, hides: bool
) -> None:
    """hides: somebody's transaction begins before ours, so that what was sent can't be seen; or it begins later."""
    domain = "oncehidden" if hides else "onceseen"
    redrive.domain(domain, partitions=2)
    other = Producer({**kafka, "transactional.id": f"{domain}-other", "transaction.timeout.ms": 600_000})
    other.init_transactions(10)

    def begin() -> None:
        other.begin_transaction()
        for number in range(2):
            other.produce(f"{domain}.orders-billing-retry", b"of somebody else", partition=number)
        assert other.flush(10) == 0

    if hides:
        begin()
    for number in range(2):
        redrive.fails(f"{domain}.orders", b"%d" % number, b"v")
    with monkeypatch.context() as patch:
        patch.setattr(BulkLane, "record", die)
        until_it_dies(redrive)
    if not hides:
        begin()
    start_after_death(redrive)
    fails(redrive, f"{domain}meanwhile", 1)
    fails(redrive, f"{domain}meanwhiledead", 1, error="KeyError")
    redrive.retries(f"{domain}meanwhile", 1)
    redrive.dead(f"{domain}meanwhiledead", 1)
    # what may be seen is recorded, before a report that names no delivery could be taken for a duplicate
    assert bool(found_by(redrive, domain)) == (not hides)
    redrive.until(lambda: redrive.loop.state.window.paused[f"{domain}.orders-billing-retry"].pause > FIRST_PAUSE, "it is tried again")
    assert not redrive.loop.steps.publish.knows_what_was_sent
    other.abort_transaction(10)
    redrive.until(lambda: redrive.loop.steps.publish.knows_what_was_sent, "it is read")
    redrive.retries(domain, 2)
    assert_sent_once(redrive, domain, 2)
    assert ("retry", "delivered", "read_back") in found_by(redrive, domain)


@pytest.mark.slow
def test_killed_before_the_timed_lane_has_recorded_the_next_loop_finds_what_was_sent(
    ahead: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(TimedLane, "_record", lambda _: None)
        fails(ahead, "oncelane", 3)
        ahead.retries("oncelane", 3)
        assert found_by(ahead, "oncelane") == []
        start_after_death(ahead)
    assert_sent_once(ahead, "oncelane", 3)
    assert found_by(ahead, "oncelane") == [("retry", "delivered", "read_back")] * 3


@pytest.mark.slow
def test_after_an_orderly_end_nothing_is_read_back(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    fails(redrive, "onceorderly", 1)
    redrive.retries("onceorderly", 1)
    redrive.settle()
    monkeypatch.setattr("orchestration.loop.read_back.ReadBack._ranges", lambda *_: pytest.fail("it reads back"))
    redrive.restart()
    assert_sent_once(redrive, "onceorderly", 1)


def unanswered(commits: bool) -> Callable[..., KafkaError]:
    """A commit that is made, or not, and has no answer: the first only."""
    commit = sending._commit
    answers: list[KafkaError] = []

    def call(producer: Any, deadline: float) -> Any:
        if answers:
            return commit(producer, deadline)
        if commits:
            assert commit(producer, deadline) is None
        answers.append(KafkaError(KafkaError._TIMED_OUT, "no answer"))
        return answers[0]

    return call


@pytest.mark.slow
@pytest.mark.parametrize(("domain", "commits"), [("oncecommitted", True), ("onceaborted", False)])
def test_what_became_of_a_commit_without_an_answer_is_found_out(
    ahead: Redrive, monkeypatch: pytest.MonkeyPatch, domain: str, commits: bool
) -> None:
    monkeypatch.setattr(sending, "_commit", unanswered(commits))
    fails(ahead, domain, 1)
    ahead.retries(domain, 1)
    ahead.until(lambda: len(found_by(ahead, domain)) >= 2, "it is found out")
    assert_sent_once(ahead, domain, 1)
    found = [(outcome, finder) for _, outcome, finder in found_by(ahead, domain)]
    expected = (
        [("unknown", None), ("delivered", "read_back")] if commits else [("unknown", None), ("absent", "read_back"), ("delivered", None)]
    )
    assert found == expected
    # not after the minute for which nothing is known without reading
    (waited,) = ahead.sql(
        "select max(sent_at) < max(not_before) as is_early from publish_results where original_topic = '" + domain + ".orders'"
    )
    assert waited["is_early"]


@pytest.mark.long
@pytest.mark.parametrize(
    "error", [ResultsLostError("the results are lost"), pytest.param(RuntimeError("a task has died"), marks=pytest.mark.slow)]
)
def test_what_spark_has_lost_is_found_in_the_topic(redrive: Redrive, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    domain = "oncelost" + type(error).__name__[:4].lower()
    send = BulkLane._send
    lost: list[Any] = []

    def loses(lane: BulkLane, *arguments: Any) -> Any:
        results = send(lane, *arguments)
        if not lost:
            lost.append(results)
            raise error
        return results

    monkeypatch.setattr(BulkLane, "_send", loses)
    fails(redrive, domain, 3)
    redrive.until(lambda: len(found_by(redrive, domain)) >= 3, "all have a result")
    assert lost
    assert_sent_once(redrive, domain, 3)
    assert ("retry", "delivered", "read_back") in found_by(redrive, domain)
