"""The queries of `redrive verify`: each promise is broken on purpose, and names what breaks it; what is in order breaks none."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from orchestration.clock import EPOCH, literal
from orchestration.kafka.sent_records import FOUND, RANGES
from orchestration.operators.promises import PROMISES
from orchestration.operators.verification import _bounds
from orchestration.outbox.direct_ids import direct_id_pattern, direct_suffix
from orchestration.settings import load_settings
from tests.dbt.harness import Home, Result, report

QUERIES = {promise.name: promise.breaches for promise in PROMISES}


@dataclass
class Sent:
    """Three messages of a topic of their own, decided, sent and recorded; and what their topic holds."""

    home: Home
    topic: str
    first: int
    deliveries: list[Row]
    records: list[dict[str, Any]]
    kept_since: datetime | None = None

    def breaches(self, promise: str) -> dict[str, str]:
        """What breaks a promise among these messages: detail by subject."""
        spark = self.home.spark
        spark.sql(f"use {self.home.schema}")
        spark.createDataFrame(pa.Table.from_pylist(self.records, FOUND)).createOrReplaceTempView("verified_records")
        spark.createDataFrame([(f"{self.topic}-billing-retry", 0, 0, 100)], RANGES).createOrReplaceTempView("verified_ranges")
        bounds = {
            "first": str(self.first),
            "upto": str(self.home.batch + 1),
            "watermark": str(self.home.batch + 1),
            "recorded_until": literal(self.home.now + timedelta(minutes=1)),
            "direct_ids": direct_id_pattern(load_settings()),
            "kept_since": literal(self.kept_since or EPOCH),
        }
        return {row["subject"]: row["detail"] for row in spark.sql(QUERIES[promise].format_map(bounds)).collect()}

    def insert(self, table: str, like: str, **changes: str) -> None:
        """Inserts copies of rows, with other values: expressions of SQL by column. In a later batch, unless it is among them."""
        changes = {"batch": str(self.home.batch + 1), **changes}
        name = f"{self.home.schema}.{table}"
        columns = ", ".join(f"{changes.get(column, column)} as {column}" for column in self.home.spark.table(name).columns)
        self.home.spark.sql(f"insert into {name} by name select {columns} from {name} where {like}")


@pytest.fixture(scope="module")
def in_order(home: Home) -> Iterator[Sent]:
    before = home.batch
    topic = "promises"
    inputs = home.append_reports(*(report(topic, number, value=b"value %d" % number) for number in range(3)))
    home.decide()
    decisions = home.decisions()
    deliveries = [decisions[name] for name in inputs]
    home.later(seconds=2)
    home.append_results(*(Result(delivery, offset=number) for number, delivery in enumerate(deliveries)))
    records = [
        {
            "topic": delivery["topic"],
            "partition": 0,
            "offset": number,
            "delivery_id": delivery["delivery_id"],
            "due_at": delivery["due_at"],
            "sent_at": home.now,
            "content_hash": delivery["content_hash"],
            "headers": [*(header.asDict() for header in delivery["headers"]), {"key": "redrive-attempt", "value": b"2"}],
        }
        for number, delivery in enumerate(deliveries)
    ]
    yield Sent(home, topic, before + 1, deliveries, records)
    home.empty(before)


@pytest.fixture
def sent(in_order: Sent) -> Iterator[Sent]:
    """The same for each test, which may change it."""
    before = in_order.home.batch
    yield replace(in_order, records=copy.deepcopy(in_order.records))
    in_order.home.empty(before)


def test_what_is_in_order_breaks_nothing(sent: Sent) -> None:
    # other messages of this home may wait for something that a test has taken away
    judged = [promise.name for promise in PROMISES if promise.name != "nothing_vanished"]
    assert {promise: sent.breaches(promise) for promise in judged} == {promise: {} for promise in judged}


def test_an_input_without_a_decision_and_one_with_two_are_told(sent: Sent) -> None:
    sent.home.append_reports(report(sent.topic, 7))
    assert sent.breaches("decided_once") == {f"batch {sent.home.batch}": "1 inputs, 0 decisions about 0"}
    sent.home.decide()
    assert sent.breaches("decided_once") == {}
    sent.insert("deliveries", f"batch = {sent.home.batch}", batch="batch")
    assert sent.breaches("decided_once") == {f"batch {sent.home.batch}": "1 inputs, 2 decisions about 1"}


def test_a_retry_after_the_last_attempt_is_told(sent: Sent) -> None:
    like = f"delivery_id = '{sent.deliveries[0]['delivery_id']}'"
    sent.insert("deliveries", like, attempt="max_attempts", input_id="'forged'")
    message = sent.deliveries[0]["message_id"]
    assert sent.breaches("within_policy") == {message: "a retry after 5 of 5 attempts, input forged"}


def test_a_message_that_waits_for_nothing_is_told(sent: Sent) -> None:
    inputs = sent.home.append_reports(report(sent.topic, 8), report(sent.topic, 9))
    sent.home.decide()
    lost, waits = (sent.home.decisions()[name] for name in inputs)
    mine = {lost["message_id"], waits["message_id"]}
    assert not mine & sent.breaches("nothing_vanished").keys()
    # no loop writes this result
    sent.home.append_results(Result(lost, "cancelled"))
    found = sent.breaches("nothing_vanished")
    assert mine & found.keys() == {lost["message_id"]}
    assert found[lost["message_id"]] == f"waiting, and delivery {lost['delivery_id']} is not open"


def test_results_that_no_loop_writes_are_told(sent: Sent) -> None:
    delivery = sent.deliveries[0]["delivery_id"]
    sent.insert("publish_results", f"delivery_id = '{delivery}'", sent_at="due_at - interval 5 milliseconds")
    place = f"{sent.topic}-billing-retry/0/0"
    assert sent.breaches("never_early") == {delivery: "sent 5 ms before it was due"}
    assert sent.breaches("recorded_once") == {delivery: f"2 results: {place}, {place}"}


CHANGES: Mapping[str, tuple[str, Any]] = {
    "a record that is gone": ("in_its_topic", lambda records: records.pop(1)),
    "a record of another delivery": ("in_its_topic", lambda records: records[1].update(delivery_id="another")),
    "a record twice": ("sent_once", lambda records: records.append({**records[1], "offset": 50})),
    "another content": ("same_bytes", lambda records: records[1].update(content_hash="another")),
    "another header": ("same_bytes", lambda records: records[1]["headers"][0].update(value=b"another")),
    "a header less": ("same_bytes", lambda records: records[1]["headers"].pop(0)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_topics_that_hold_something_else_are_told(sent: Sent, change: str) -> None:
    promise, alter = CHANGES[change]
    alter(sent.records)
    place = f"{sent.topic}-billing-retry/0/1"
    (told,) = sent.breaches(promise).items()
    assert told[0] == sent.deliveries[1]["delivery_id"]
    assert place in told[1]
    others = [name for name in ("in_its_topic", "sent_once", "same_bytes") if name != promise]
    assert [sent.breaches(name) for name in others] == [{}, {}]


def test_a_record_without_a_result_is_told_unless_it_is_answered_or_of_others(sent: Sent) -> None:
    inputs = sent.home.append_reports(report(sent.topic, 10))
    sent.home.decide()
    unrecorded = sent.home.decisions()[inputs[0]]
    sent.records.append({**sent.records[0], "offset": 10, "delivery_id": unrecorded["delivery_id"], "due_at": unrecorded["due_at"]})
    sent.records.append({**sent.records[0], "offset": 11, "delivery_id": "of another installation"})
    assert sent.breaches("sent_and_recorded") == {unrecorded["delivery_id"]: f"no result for {sent.topic}-billing-retry/0/10"}
    sent.records[-2]["sent_at"] += timedelta(hours=1)
    assert sent.breaches("sent_and_recorded") == {}, "it may be recorded yet"


def test_a_row_that_was_sent_directly_without_a_result_is_told(sent: Sent) -> None:
    direct = f"outbox:shop/7{direct_suffix(load_settings(), 31)}"
    for offset, delivery in enumerate((direct, "outbox:shop/8#direct.00000000.1f"), 10):
        sent.records.append({**sent.records[0], "offset": offset, "delivery_id": delivery})
    assert sent.breaches("sent_and_recorded") == {direct: f"no result for {sent.topic}-billing-retry/0/10"}
    sent.kept_since = sent.records[-1]["sent_at"] + timedelta(seconds=1)
    assert sent.breaches("sent_and_recorded") == {}, "its result may be removed"


@pytest.mark.parametrize(("kind", "is_recorded"), [("tick", False), ("end", True), ("start", True)])
def test_after_an_orderly_end_everything_sent_before_is_judged_also_when_the_next_loop_has_started(
    home: Home, kind: str, is_recorded: bool
) -> None:
    home.append_tick(home.batch, kind=kind)
    home.spark.sql(f"use {home.schema}")
    bounds = _bounds(load_settings(), home.spark, EPOCH, None)
    assert bounds["recorded_until"] == literal(home.now if is_recorded else EPOCH)
