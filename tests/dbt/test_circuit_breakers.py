"""What circuit breakers ask for, over whole tables: of all keys in one look and one append, and never again what the rules refuse."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, Row

from orchestration.clock import LoopClock
from orchestration.loop.circuit_breaker import CircuitBreaker
from orchestration.loop.circuit_breakers import CircuitBreakers
from orchestration.loop.due import Due
from orchestration.loop.read_back import ReadBack
from orchestration.loop.steps import StepReport
from orchestration.loop.stored import Stored
from tests.dbt.harness import Home, Result, report
from tests.dbt.test_publish_step import step
from tests.unit.loop_kit.steps import state_at

RATE = 2


def breakers_of(home: Home, topics: Sequence[str], *, closed: bool) -> CircuitBreakers:
    """The circuit breakers of some topics, all of them opened a minute ago, or closed since."""
    since = home.now - timedelta(minutes=1)
    state = {"opened_at": since, "closed_at": since if closed else None, "error_class": "E", "probes": 0, "probe": None}
    breakers = CircuitBreakers(home.spark, home.schema, home._ledgers, timedelta(seconds=2), RATE)
    row = Row(**state, next_probe=since, floor=since - timedelta(hours=1))
    breakers.breakers = {f"billing:{topic}": CircuitBreaker.from_row(row) for topic in topics}
    return breakers


def retries(home: Home, topics: Sequence[str], each: int) -> list[Row]:
    """Messages that wait, by their offsets."""
    input_ids = home.append_reports(*(report(topic, offset, failed_at=home.now) for offset in range(each) for topic in topics))
    home.decide()
    decisions = home.decisions()
    home.later(minutes=2)
    return [decisions[input_id] for input_id in input_ids]


def decided(home: Home, breakers: CircuitBreakers) -> list[Row]:
    """What becomes of what the circuit breakers have asked for last."""
    home.decide()
    breakers.decided(home.batch - 1, home.batch, home.now, home.now - timedelta(hours=1))
    return [row for row in home.decisions().values() if row["batch"] == home.batch]


def asked(rows: Sequence[Row]) -> list[tuple[str, str, int]]:
    return sorted((row["decision"], row["original_topic"], row["original_offset"]) for row in rows)


class Looks:
    """Counts the statements whose rows come back."""

    def __init__(self, kind: type[DataFrame], monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        collect: Any = kind.collect

        def counted(frame: DataFrame) -> list[Row]:
            self.count += 1
            rows: list[Row] = collect(frame)
            return rows

        monkeypatch.setattr(kind, "collect", counted)


@pytest.mark.slow
def test_all_circuit_breakers_are_looked_at_at_once_and_asked_for_in_one_append(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [f"gated-{name}" for name in "abcdef"]
    waiting = retries(home, topics, 3)
    looks = Looks(type(home.spark.range(0)), monkeypatch)
    # open, and all is due: the oldest of each goes out, the others are held
    breakers, publish = breakers_of(home, topics, closed=False), step(home)
    what = Due(min(row["due_at"] for row in waiting), home.now, home.now)
    before = home.batch
    assert breakers.hold(publish, what, publish.waiting(what, breakers=breakers.open)) == (12, 0)
    assert home.batch == before + 1
    held = [row for row in home.read("held_deliveries") if row["original_topic"] in topics]
    assert {row["original_offset"] for row in held} == {1, 2}
    home.append_results(*(Result(row, "held") for row in waiting if row["original_offset"] == 0))
    # nothing is due any more: the oldest of what is held is asked for, in each key
    breakers, before, looks.count = breakers_of(home, topics, closed=False), home.batch, 0
    nothing = Due(home.now, home.now, home.now)
    assert breakers.hold(publish, nothing, publish.waiting(nothing)) == (0, 6)
    assert home.batch == before + 1
    assert looks.count < len(topics)
    assert asked(decided(home, breakers)) == [("retry", topic, 0) for topic in topics]
    # closed: some of each are released, by the rate
    breakers, looks.count = breakers_of(home, topics, closed=True), 0
    before = home.batch
    assert breakers.release(home.now) == 6
    assert home.batch == before + 1
    assert looks.count < len(topics)
    assert breakers.release(home.now) == 0, "what was asked for is not decided yet"
    assert asked(decided(home, breakers)) == [("retry", topic, 1) for topic in topics]
    home.later(seconds=5)
    assert breakers.release(home.now) == 6
    assert asked(decided(home, breakers)) == [("retry", topic, 2) for topic in topics]
    # nothing is held any more
    home.later(seconds=5)
    assert (breakers.release(home.now), breakers.breakers) == (0, {})


@pytest.mark.slow
def test_a_release_that_the_rules_refuse_is_asked_for_once_and_again_under_other_rules(home: Home, seeds: Path) -> None:
    topics = ["gated-refused", "gated-free"]
    home.append_results(*(Result(row, "held") for row in retries(home, topics, 1)))
    sources = (seeds / "sources.csv").read_text(encoding="utf-8")
    reads = {"source": "thief", "topic": "gated-refused-billing-retry", "dialect": "redrive", "speaks_for": "none", "start": "latest"}
    added = ",".join(reads.get(name, "") for name in sources.splitlines()[0].split(","))
    (seeds / "sources.csv").write_text(f"{sources}{added}\n", encoding="utf-8")
    home.load_rules()
    breakers = breakers_of(home, topics, closed=True)
    assert breakers.release(home.now) == 2
    assert asked(decided(home, breakers)) == [("refused", "gated-refused", 0), ("retry", "gated-free", 0)]
    before = home.batch
    for _ in range(3):
        home.later(minutes=2)
        assert breakers.release(home.now) == 0
    assert home.batch == before
    # it is not forgotten, nor is its circuit breaker
    (held,) = (row for row in home.read("held_deliveries") if row["original_topic"] in topics)
    assert (held["original_topic"], held["is_refused"]) == ("gated-refused", True)
    assert list(breakers.breakers) == ["billing:gated-refused"]
    # nor is it a probe
    closed, nothing = breakers_of(home, topics, closed=False), Due(home.now, home.now, home.now)
    assert closed.hold(step(home), nothing, step(home).waiting(nothing)) == (0, 0)
    (seeds / "sources.csv").write_text(sources, encoding="utf-8")
    home.load_rules()
    home.later(minutes=2)
    assert breakers.release(home.now) == 1
    assert asked(decided(home, breakers)) == [("retry", "gated-refused", 0)]


@pytest.mark.slow
def test_after_a_start_what_was_sent_before_a_circuit_breaker_opened_is_no_probe_of_it(home: Home) -> None:
    topics = ["resumed-a", "resumed-b"]
    waiting = retries(home, topics, 1)
    before = home.batch
    home.append_results(*(Result(row) for row in waiting))
    breakers = breakers_of(home, topics, closed=False)
    breakers.resume(before, {"billing:resumed-b"})
    assert {key: one.probe is not None for key, one in breakers.breakers.items()} == {"billing:resumed-a": False, "billing:resumed-b": True}


@pytest.mark.slow
def test_what_a_loop_whose_clock_was_ahead_has_sent_is_found(home: Home) -> None:
    (input_id,) = home.append_reports(report("ahead", 0, failed_at=home.now))
    home.decide()
    sent = home.decisions()[input_id]
    # the clock of the loop that starts now is more than the margin behind the one that has sent it
    now = sent["due_at"] - timedelta(minutes=5)
    stored = Stored(home.spark, home.schema, home._ledgers, LoopClock(now))
    leadership: Any = SimpleNamespace(stored=stored, bulk_lane=step(home))
    reads, destination = ReadBack(leadership, cast(Any, None), stored.clock), sent["topic"]
    assert destination in reads._destinations(now - timedelta(minutes=1), now)
    place = (sent["topic"], 0, 7, sent["delivery_id"], sent["due_at"], now, None, None)
    found = home.spark.createDataFrame(
        [place],
        "topic string, partition int, offset bigint, delivery_id string, due_at timestamp, sent_at timestamp, error_code int, "
        "problem string",
    )
    assert reads._record(StepReport(state_at(now)), found, {destination}, now) == (1, 0)


@pytest.mark.long
def test_what_may_have_been_sent_is_not_held_and_its_circuit_breaker_neither_probes_nor_closes(home: Home) -> None:
    topics = ["unread-a", "unread-b"]
    waiting = retries(home, topics, 2)
    home.append_results(*(Result(row, "held") for row in waiting if row["original_offset"] == 0))
    breakers, publish = breakers_of(home, topics, closed=False), step(home)
    what = Due(min(row["due_at"] for row in waiting), home.now, home.now)
    blocked = publish.waiting(what, breakers=breakers.open)
    # of the other, what is due goes out, as there is no older probe that is due; what is held would be asked for if nothing were due
    assert breakers.hold(publish, what, blocked, ["unread-a-billing-retry"]) == (0, 0)
    assert [*breakers._candidates] == ["billing:unread-b"]
    assert [breakers.breakers[f"billing:{topic}"].is_open for topic in topics] == [True, True]
    held = [row for row in home.read("held_deliveries") if row["original_topic"] in topics]
    assert {row["original_offset"] for row in held} == {0}
    # once it is read
    assert breakers.hold(publish, what, blocked) == (0, 0)
    assert [*breakers._candidates] == [f"billing:{topic}" for topic in topics]
