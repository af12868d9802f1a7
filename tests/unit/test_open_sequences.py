"""What the loop keeps of sequences from look to look, without Spark: which of them it asks about, and with which decisions.

tests/dbt/sequence_kit.py compares what it knows with what the tables say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from pyspark.sql import Row

from orchestration.loop.consumer_progress import Place
from orchestration.loop.open_sequences import _KEY, _READ, OpenSequences, _key
from tests.unit.jinja_macros import macros

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def decision(
    offset: int,
    what: str = "retry",
    *,
    batch: int = 1,
    sequence: str = "a",
    due: datetime = NOW,
    group: str = "billing",
    answers: str | None = None,
) -> Row:
    given: dict[str, Any] = {
        "message_id": f"{group}:orders/0/{offset}",
        "input_id": f"reports/0/{batch}/0",
        "batch": batch,
        "decision": what,
        "kind": what if what in ("retry", "redrive", "dead_letter") else None,
        "due_at": due,
        "consumer_group": group,
        "original_topic": "orders",
        "original_partition": 0,
        "original_offset": offset,
        "sequence": sequence,
        "topic": "retries",
        "prior_delivery": answers,
    }
    return Row(**{name: given.get(name) for name in _READ})


@dataclass
class Known(OpenSequences):
    """Whose tables are a list of decisions. A sequence is held if its last decision is not `done`; it keeps what it was asked about."""

    table: list[Row] = field(default_factory=list)
    asked: list[tuple[list[Row], datetime]] = field(default_factory=list)
    fails: bool = False
    missed: set[str] = field(default_factory=set)

    def _of_held_sequences(self, upto: int) -> list[Row]:
        return [row for row in self.table if row["batch"] <= upto]

    def _since(self, seen: int, upto: int) -> list[Row]:
        return [row for row in self.table if seen < row["batch"] <= upto]

    def _before(self, came: Iterable[Row], upto: int) -> list[Row]:
        self.missed = {_key(row) for row in came if row["prior_delivery"] is not None} - self._decisions.keys()
        return [row for row in self.table if row["batch"] <= upto and _key(row) in self.missed]

    def _asked(self, decisions: list[Row], now: datetime) -> tuple[dict[str, str], dict[str, list[Row]]]:
        if self.fails:
            raise ZeroDivisionError
        self.asked.append((decisions, now))
        last = {_key(row): row for row in sorted(decisions, key=lambda row: (row["batch"], row["original_offset"]))}
        return {key: json.dumps(row["batch"]) for key, row in last.items() if row["decision"] != "done"}, {}

    def questions(self) -> list[list[str]]:
        """The sequences of each question, and forgets them."""
        found = [sorted({row["sequence"] for row in rows}) for rows, _ in self.asked]
        self.asked.clear()
        return found


@pytest.fixture
def rules() -> list[str]:
    return ["rules"]


@pytest.fixture
def known(rules: list[str]) -> Known:
    made = Known(cast(Any, None), "redrive", lambda: True, lambda: rules[-1])
    made.table = [decision(1), decision(2, "follows"), decision(3, sequence="b", due=NOW + timedelta(hours=1))]
    return made


def keys(sequences: Iterable[str]) -> list[str]:
    return sorted(key.rpartition("/")[2] for key in sequences)


def test_its_keys_are_those_of_the_sql() -> None:
    said = macros("identity", "sequence_key").sequence_key("consumer_group", "original_topic", "original_partition", "sequence")
    assert said.strip() == _KEY
    assert (_key(decision(1)), _key(decision(1, group=""))) == ("billing:orders/0/a", ":orders/0/a")


def test_a_start_asks_about_everything_and_later_looks_about_what_has_happened(known: Known) -> None:
    known.look(1, NOW)
    assert (known.questions(), keys(known.held)) == ([["a", "b"]], ["a", "b"])
    known.look(1, NOW)
    assert known.questions() == []
    known.table.append(decision(4, batch=2, sequence="b"))
    known.look(2, NOW)
    # with all that is known of it
    assert [sorted(row["original_offset"] for row in rows) for rows, _ in known.asked] == [[3, 4]]
    assert json.loads(known.held["billing:orders/0/b"]) == 2


def test_a_sequence_that_is_free_is_forgotten_and_begins_anew(known: Known) -> None:
    known.look(1, NOW)
    known.table.append(decision(2, "done", batch=2))
    known.look(2, NOW)
    assert keys(known.held) == ["b"]
    known.asked.clear()
    known.table.append(decision(5, batch=3))
    known.look(3, NOW)
    assert [[row["original_offset"] for row in rows] for rows, _ in known.asked] == [[5]]


def test_it_knows_in_which_sequences_something_has_happened_since_consumers_were_told(known: Known) -> None:
    known.look(1, NOW)
    assert known.touched is None
    known.told()
    known.table.append(decision(4, batch=2, sequence="b"))
    known.look(2, NOW)
    known.table.append(decision(2, "done", batch=3))
    known.look(3, NOW)
    assert known.touched == {"billing:orders/0/a", "billing:orders/0/b"}
    known.told()
    known.look(3, NOW)
    assert known.touched == set()
    known.forget()
    assert known.touched is None


def test_what_has_settled_counts_in_the_next_tick_for_what_was_due_and_sent_there(known: Known) -> None:
    known.look(1, NOW)
    known.questions()
    known.note_settled([Place("billing", "retries", 0), Place("audit", "retries", 0)])
    known.look(1, NOW)
    assert known.questions() == []
    known.note_settled([])
    known.look(1, NOW)
    assert known.questions() == [["a"]]
    known.note_settled([Place("billing", "elsewhere", 0)])
    known.note_settled([])
    known.look(1, NOW)
    assert known.questions() == []


def test_other_rules_ask_about_all_that_is_held(known: Known, rules: list[str]) -> None:
    known.look(1, NOW)
    known.questions()
    rules.append("others")
    known.look(1, NOW)
    known.look(1, NOW)
    assert known.questions() == [["a", "b"]]


def test_of_the_decisions_about_a_message_the_last_of_each_kind_is_kept(known: Known) -> None:
    known.table = [decision(1, batch=batch) for batch in (1, 2, 3)] + [decision(1, "discarded", batch=2)]
    known.look(3, NOW)
    ((rows, _),) = known.asked
    assert sorted((row["decision"], row["batch"]) for row in rows) == [("discarded", 2), ("retry", 3)]


def test_after_a_look_that_failed_nothing_is_known_until_the_tables_are_read(known: Known) -> None:
    known.look(1, NOW)
    known.table.append(decision(4, batch=2, sequence="b"))
    known.fails = True
    with pytest.raises(ZeroDivisionError):
        known.look(2, NOW)
    assert not known.is_known
    known.fails = False
    known.look(2, NOW)
    assert (known.is_known, known.questions()[-1], keys(known.held)) == (True, ["a", "b"], ["a", "b"])
    known.forget()
    assert not known.is_known


def test_of_a_sequence_that_was_free_the_earlier_decisions_are_read_where_one_is_answered(known: Known) -> None:
    known.table = [decision(1, "done"), decision(3, sequence="b")]
    known.look(1, NOW)
    known.asked.clear()
    known.table += [decision(1, "restored", batch=2, answers="delivery"), decision(4, sequence="c", batch=2)]
    known.look(2, NOW)
    ((rows, _),) = known.asked
    assert sorted((row["sequence"], row["decision"]) for row in rows) == [("a", "done"), ("a", "restored"), ("c", "retry")]


def test_what_is_held_when_no_route_asks_for_order_any_more_goes_on_until_it_is_free(known: Known) -> None:
    known.look(1, NOW)
    known.keeps_sequences = lambda: False
    known.table += [decision(1, "done", batch=2), decision(2, "done", batch=2)]
    known.look(2, NOW)
    assert keys(known.held) == ["b"]
    known.table.append(decision(3, "done", batch=3, sequence="b"))
    known.look(3, NOW)
    assert (known.held, known.is_known) == ({}, True)
    known.look(4, NOW)
    assert not known.is_known
