"""What a publish step reads: what is due, of the files that it can be in."""

from __future__ import annotations

from typing import Any

import pytest

from orchestration.loop.due import Due, Waiting, Window
from orchestration.loop.sending import BulkLane
from orchestration.tables.ledgers import Ledgers
from publisher import READY, PublisherSettings
from publisher.ready import complete
from tests.dbt.harness import Home, Result, order, pointer, report


def step(home: Home, kafka: dict[str, str] | None = None, max_bytes: int = 1_000_000) -> BulkLane:
    settings = PublisherSettings(kafka=kafka or {}, error_kinds={}, transactional_prefix="", instance="", generation=1)
    return BulkLane(home.spark, home.schema, Ledgers(home.spark, home.schema), settings, slots=1, max_rows=1000, max_bytes=max_bytes)


def weight(record: dict[str, Any]) -> int:
    """The bytes of a record that goes to Kafka."""
    parts = [record["key"], record["value"], *(part for header in record["headers"] for part in (header["key"].encode(), header["value"]))]
    return sum(len(part) for part in parts if part is not None)


@pytest.mark.long
@pytest.mark.parametrize(
    "listed", [pytest.param(200, id="each batch is named"), pytest.param(1, id="too many batches to be named", marks=pytest.mark.slow)]
)
def test_a_step_leaves_files_alone_whose_messages_wait(home: Home, monkeypatch: pytest.MonkeyPatch, listed: int) -> None:
    monkeypatch.setattr("orchestration.loop.due._LISTED", listed)
    home.later(hours=24)
    topic = f"step-{listed}"
    batches = []
    for offset in range(4):
        home.append_reports(report(topic, offset))
        home.decide()
        batches.append(home.batch)
        home.later(minutes=5)
    made = sorted((row for row in home.read("deliveries") if row["original_topic"] == topic), key=lambda row: row["batch"])
    assert [row["batch"] for row in made] == batches
    # all four are due within one hour; of them the second and the third lie in what is looked at
    publish = step(home)
    first, last = (row["due_at"] for row in made[1:3])
    waiting = publish.waiting(Due(first, last, home.now))
    assert (waiting.rows, waiting.batches) == (2, tuple(batches[1:3]))
    due = publish.due(Due(first, last, home.now), waiting)
    assert {row["message_id"] for row in due.select("message_id").collect()} == {f"billing:{topic}/0/{offset}" for offset in (1, 2)}
    # the wheel is read for the rows, for which decide run they count of, and, by other columns, for what answers them
    plan = due._jdf.queryExecution().executedPlan().toString()
    scans = [line for line in plan.splitlines() if "BatchScan" in line and ".deliveries" in line and "prior_due" not in line]
    named = f"batch IN ({', '.join(map(str, batches[1:3]))})" if listed > 1 else f"batch >= {batches[1]}, batch <= {batches[2]}"
    assert [named in scan for scan in scans] == [True, True]


@pytest.mark.slow
def test_a_step_for_some_destinations_reads_each_in_its_own_time(home: Home) -> None:
    home.later(hours=24)
    made = []
    for hour in range(3):
        input_ids = home.append_reports(*(report(f"aside-{name}", hour) for name in "ab"))
        home.decide()
        decisions = home.decisions()
        made.append([decisions[input_id] for input_id in input_ids])
        home.later(hours=5)
    (a0, _), _, (a2, b2) = made
    what = Due.within([Window(row["topic"], row["due_at"], row["due_at"]) for row in (a0, b2)], home.now)
    publish = step(home)
    waiting = publish.waiting(what)
    assert (waiting.rows, waiting.batches) == (2, (a0["batch"], b2["batch"]))
    due = publish.due(what, waiting)
    assert {row["delivery_id"] for row in due.select("delivery_id").collect()} == {a0["delivery_id"], b2["delivery_id"]}
    assert a2["delivery_id"] not in {row["delivery_id"] for row in due.select("delivery_id").collect()}
    # what came between is not read
    plan = due._jdf.queryExecution().executedPlan().toString()
    scans = [line for line in plan.splitlines() if "BatchScan" in line and ".publish_results" in line]
    assert scans
    assert [scan for scan in scans if scan.count("due_at >=") < 2] == []


def test_a_step_finds_when_the_next_is_due(home: Home) -> None:
    home.later(hours=24)
    input_ids = home.append_reports(report("step-next", 0), report("step-next", 1))
    home.decide()
    decided = home.decisions()
    earlier, later = sorted(decided[input_id]["due_at"] for input_id in input_ids)
    waiting = step(home).waiting(Due(earlier, earlier, home.now))
    assert (waiting.rows, waiting.next_due, waiting.batches) == (1, later, (home.batch,))
    assert waiting.size == waiting.largest > 0


def test_a_step_with_nothing_due_reads_nothing(home: Home) -> None:
    home.later(hours=24)
    publish = step(home)
    nothing = publish.waiting(Due(home.now, home.now, home.now))
    assert nothing == Waiting(rows=0, size=0, largest=0, next_due=None, batches=())
    assert publish.due(Due(home.now, home.now, home.now), nothing).collect() == []


@pytest.mark.slow
def test_what_is_added_to_a_message_counts_in_a_step(home: Home) -> None:
    home.later(hours=24)
    stack = ("redrive-error-stack", b"at a line of code\n" * 1000)
    input_ids = home.append_reports(
        *(report(topic, 700, error="KeyError").with_headers(stack) for topic in ("letter-dlq", "letter-dlq-stack", "letter-safi-stack")),
    )
    home.decide()
    # that of the dead letter's own report is counted with what came; one that is written again has a result for its input
    failed = [Result(home.decisions()[input_id], "failed", error_name="MSG_SIZE_TOO_LARGE", error_kind="poison") for input_id in input_ids]
    home.later(minutes=1)
    input_ids = [*home.append_results(*failed), *home.append_reports(report("step-added", 700))]
    home.decide()
    rows = [home.decisions()[input_id] for input_id in input_ids]
    assert [row["kind"] for row in rows] == ["dead_letter"] * 3 + ["retry"]
    publish = step(home)
    for row in rows:
        due = row["due_at"]
        what = Due.within([Window(row["topic"], due, due)], due)
        waiting = publish.waiting(what)
        (batch,) = publish.due(what, waiting).select(*READY.names).toArrow().to_batches()
        (record,) = complete(batch).to_pylist()
        assert row["payload_bytes"] < weight(record) <= waiting.largest == waiting.size < weight(record) + 2_000


@pytest.mark.slow
def test_a_step_is_cut_where_what_is_added_would_be_too_much(home: Home) -> None:
    home.later(hours=24)
    due = []
    for offset in (710, 711, 712):
        (input_id,) = home.append_reports(report("letter-dlq-stack", offset, error="KeyError"))
        home.decide()
        due.append(home.decisions()[input_id]["due_at"])
        home.later(minutes=1)
    publish = step(home, max_bytes=25_000)
    waiting = publish.waiting(Due(due[0], due[-1], home.now))
    assert waiting.rows == 3
    assert publish._cut(Due(due[0], due[-1], home.now), waiting) == due[1]


def test_a_task_that_cannot_send_is_told_as_a_stop_of_everything(home: Home) -> None:
    home.later(hours=24)
    (input_id,) = home.append_reports(report("step-rejected"))
    home.decide()
    due = home.decisions()[input_id]["due_at"]
    publish = step(home, kafka={"no.such.property": "x"})
    published = publish.run(Due(due, due, due), lambda: home.now, publish.waiting(Due(due, due, due)))
    assert published.sent == 0
    (stop,) = published.stops
    assert stop.topic is None
    assert stop.reason.startswith("RejectedPropertiesError: the Kafka client does not take its properties: ")
    assert stop.reason.endswith(" (_APPLICATION)")


def test_a_step_leaves_out_what_an_undecided_event_names(home: Home) -> None:
    home.later(hours=24)
    topic = "step-named"
    home.append_reports(*(report(topic, offset) for offset in range(6)))
    home.decide()
    rows = sorted((row for row in home.read("deliveries") if row["original_topic"] == topic), key=lambda row: row["original_offset"])
    ordered, cancelled, reported, forged, answered, waits = rows
    # an order decided long ago names a delivery, too
    home.append_reports(order("note", waits))
    decided = home.batch
    retry = report(ordered["topic"], 7, key=reported["key"], value=reported["value"])
    home.append_reports(
        order("send_now", ordered),
        order("cancel", cancelled),
        # sent, and its result was lost: the report tells of it
        retry.with_headers(*pointer(reported)),
        # the last pointer counts; one that is no text names nothing
        retry.with_headers(*pointer(answered), *pointer(forged)),
        report("step-named-other", 1).with_headers(("redrive-delivery", b"\xff")),
        report("step-named-other", 2),
    )
    home.later(minutes=1)
    publish = step(home)
    first, last = min(row["due_at"] for row in rows), max(row["due_at"] for row in rows)
    waiting = publish.waiting(Due(first, last, home.now))

    def due(after: int | None) -> set[int]:
        step_of = Due(first, last, home.now, undecided_after=after)
        return {
            row["original_offset"]
            for row in publish.due(step_of, waiting).select("original_offset", "original_topic").collect()
            if row["original_topic"] == topic
        }

    assert due(decided) == {4, 5}
    assert due(None) == due(home.batch) == {0, 1, 2, 3, 4, 5}
