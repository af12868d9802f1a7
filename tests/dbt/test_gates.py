"""What gates ask for, over whole tables: of all scopes in one look and one append, and never again what the rules refuse."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row

from orchestration.loop.due import Due
from orchestration.loop.gate import Gate
from orchestration.loop.gates import Gates
from tests.dbt.harness import Home, Result, report
from tests.dbt.test_publish_step import step

RATE = 2


def gates_of(home: Home, topics: Sequence[str], *, opened: bool) -> Gates:
    """The gates of some topics, all of them closed a minute ago, or open since."""
    since = home.now - timedelta(minutes=1)
    state = {"closed_at": since, "opened_at": since if opened else None, "error_class": "E", "probes": 0, "probe": None}
    gates = Gates(home.spark, home.schema, home._ledgers, timedelta(seconds=2), RATE)
    row = Row(**state, next_probe=since, floor=since - timedelta(hours=1))
    gates.gates = {f"billing:{topic}": Gate.from_row(row) for topic in topics}
    return gates


def retries(home: Home, topics: Sequence[str], each: int) -> list[Row]:
    """Messages that wait, by their offsets."""
    causes = home.append_reports(*(report(topic, offset, failed_at=home.now) for offset in range(each) for topic in topics))
    home.fold()
    decisions = home.decisions()
    home.later(minutes=2)
    return [decisions[cause] for cause in causes]


def decided(home: Home, gates: Gates) -> list[Row]:
    """What becomes of what the gates have asked for last."""
    home.fold()
    gates.decided(home.batch - 1, home.batch, home.now, home.now - timedelta(hours=1))
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


@pytest.mark.long
def test_all_scopes_are_looked_at_at_once_and_asked_for_in_one_append(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [f"gated-{name}" for name in "abcdef"]
    waiting = retries(home, topics, 3)
    looks = Looks(type(home.spark.range(0)), monkeypatch)
    # closed, and all is due: the oldest of each goes out, the others are held
    gates, publish = gates_of(home, topics, opened=False), step(home)
    what = Due(min(row["due_at"] for row in waiting), home.now, home.now)
    before = home.batch
    assert gates.hold(publish, what, publish.waiting(what, gates=gates.closed)) == (12, 0)
    assert home.batch == before + 1
    held = [row for row in home.read("held_deliveries") if row["original_topic"] in topics]
    assert {row["original_offset"] for row in held} == {1, 2}
    home.append_results(*(Result(row, "held") for row in waiting if row["original_offset"] == 0))
    # nothing is due any more: the oldest of what is held is asked for, in each scope
    gates, before, looks.count = gates_of(home, topics, opened=False), home.batch, 0
    nothing = Due(home.now, home.now, home.now)
    assert gates.hold(publish, nothing, publish.waiting(nothing)) == (0, 6)
    assert home.batch == before + 1
    assert looks.count < len(topics)
    assert asked(decided(home, gates)) == [("retry", topic, 0) for topic in topics]
    # open: some of each, by the rate
    gates, looks.count = gates_of(home, topics, opened=True), 0
    before = home.batch
    assert gates.release(home.now) == 6
    assert home.batch == before + 1
    assert looks.count < len(topics)
    assert gates.release(home.now) == 0, "what was asked for is not decided yet"
    assert asked(decided(home, gates)) == [("retry", topic, 1) for topic in topics]
    home.later(seconds=5)
    assert gates.release(home.now) == 6
    assert asked(decided(home, gates)) == [("retry", topic, 2) for topic in topics]
    # nothing is held any more
    home.later(seconds=5)
    assert (gates.release(home.now), gates.gates) == (0, {})


@pytest.mark.long
def test_a_release_that_the_rules_refuse_is_asked_for_once_and_again_under_other_rules(home: Home, seeds: Path) -> None:
    topics = ["gated-refused", "gated-free"]
    home.append_results(*(Result(row, "held") for row in retries(home, topics, 1)))
    sources = (seeds / "sources.csv").read_text(encoding="utf-8")
    reads = {"source": "thief", "topic": "gated-refused-billing-retry", "dialect": "redrive", "speaks_for": "none", "start": "latest"}
    added = ",".join(reads.get(name, "") for name in sources.splitlines()[0].split(","))
    (seeds / "sources.csv").write_text(f"{sources}{added}\n", encoding="utf-8")
    home.load_rules()
    gates = gates_of(home, topics, opened=True)
    assert gates.release(home.now) == 2
    assert asked(decided(home, gates)) == [("refused", "gated-refused", 0), ("retry", "gated-free", 0)]
    before = home.batch
    for _ in range(3):
        home.later(minutes=2)
        assert gates.release(home.now) == 0
    assert home.batch == before
    # it is not forgotten, nor is its gate
    (held,) = (row for row in home.read("held_deliveries") if row["original_topic"] in topics)
    assert (held["original_topic"], held["is_refused"]) == ("gated-refused", True)
    assert list(gates.gates) == ["billing:gated-refused"]
    # nor is it a probe
    closed, nothing = gates_of(home, topics, opened=False), Due(home.now, home.now, home.now)
    assert closed.hold(step(home), nothing, step(home).waiting(nothing)) == (0, 0)
    (seeds / "sources.csv").write_text(sources, encoding="utf-8")
    home.load_rules()
    home.later(minutes=2)
    assert gates.release(home.now) == 1
    assert asked(decided(home, gates)) == [("retry", "gated-refused", 0)]
