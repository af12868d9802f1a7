"""What is finished and old is removed with all its rows, and nothing else; a run that was interrupted is completed by the next."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest
from pyspark.sql import Row

from orchestration.operators.promises import INPUTS_BY_BATCH
from orchestration.settings import Settings, load_settings
from orchestration.tables.maintenance import MaintenanceReport, maintain
from orchestration.tables.retention import Retention, removed_before
from tests.dbt.harness import PROJECT, Home, Result, order, report
from tests.dbt.outbox_rows import append_rows

pytestmark = pytest.mark.long

# what became of each message, by its offset
FINISHED = {0: "sent", 1: "cancelled"}
KEPT = {2: "dead", 3: "waiting", 4: "sent lately", 6: "sent lately, though it was due long ago"}


@dataclass(frozen=True)
class Old:
    """Messages of a topic that are forty days old."""

    home: Home
    topic: str

    @property
    def settings(self) -> Settings:
        return load_settings(
            home=self.home.path,
            seeds=self.home.path / "seeds",
            project=PROJECT,
            retention_days=30,
            maintenance_snapshots=1,
            # the home's clock may be ahead of the wall clock after many tests: files of the last day are never orphans
            maintenance_orphan_days=1_000,
        )

    def maintain(self) -> MaintenanceReport:
        return maintain(self.settings, self.home.spark, self.home.now)

    def rows(self, table: str, column: str = "original_offset", where: str = "true") -> set[int]:
        found = self.home.spark.sql(
            f"select distinct {column} as offset from {self.home.schema}.{table} where original_topic = '{self.topic}' and {where}"
        )
        return {row["offset"] for row in found.collect()}

    def events(self) -> int:
        # the number of reports about this topic: the header has its name
        found = self.home.spark.sql(
            f"""
            select count(*) as events from {self.home.schema}.events
            where exists(headers, h -> h.key = 'redrive-original-topic' and cast(h.value as string) = '{self.topic}')
            """
        )
        return int(found.collect()[0]["events"])


@pytest.fixture
def old(home: Home) -> Old:
    topic = f"old-{home.batch}"
    offsets = [*FINISHED, *KEPT]
    inputs = home.append_reports(
        *(report(topic, offset, error="KeyError" if offset == 2 else "TimeoutError", failed_at=home.now) for offset in offsets),
        report(topic, 5, failed_at=home.now).but(source="nobody"),
    )
    home.decide()
    decided = [home.decisions()[name] for name in inputs]
    home.append_reports(order("cancel", decided[1]))
    home.append_results(*(Result(decided[offset], offset=offset) for offset in (0, 2, 4)))
    home.decide()
    # a day passes, and another thirty-nine
    home.later(days=40)
    again = home.append_reports(report(topic, 4, failed_at=home.now))
    home.decide()
    home.append_results(Result(home.decisions()[again[0]], offset=40), Result(decided[offsets.index(6)], offset=60))
    home.append_tick(home.batch)
    return Old(home, topic)


def test_finished_messages_are_removed_with_all_their_rows_and_no_others(old: Old) -> None:
    states = {row["original_offset"]: row["state"] for row in old.home.read("messages") if row["original_topic"] == old.topic}
    assert {offset: states[offset] for offset in range(4)} == {0: "sent", 1: "cancelled", 2: "dead", 3: "waiting"}
    refused = "decision = 'refused' and reason = 'unknown_source'"
    refusals = old.home.spark.table(f"{old.home.schema}.decisions").where(refused).count()
    assert refusals
    before = {str(row) for row in old.home.read("deliveries") if row["original_topic"] == old.topic and row["original_offset"] in KEPT}
    reports = old.events()
    # other tests of this home write decisions without inputs
    unbalanced_before = unbalanced(old.home)

    done = {table.table: table.rows_removed for table in old.maintain().tables}
    assert done["deliveries"] >= 3
    assert done["publish_results"] >= 1
    assert done["events"] >= 3

    assert old.rows("deliveries") == {*KEPT}
    assert old.rows("publish_results") == {2, 4, 6}
    assert old.events() == reports - 2
    after = {str(row) for row in old.home.read("deliveries") if row["original_topic"] == old.topic}
    assert after == before
    left = {row["original_offset"]: row["state"] for row in old.home.read("messages") if row["original_topic"] == old.topic}
    assert left == {offset: state for offset, state in states.items() if offset in KEPT}
    assert old.home.spark.table(f"{old.home.schema}.decisions").where(refused).count() == refusals
    # every input that is left has its decision, and every decision its input
    assert unbalanced(old.home) <= unbalanced_before
    # what is not complete any more is known from before anything was removed
    assert removed_before(old.home.spark, old.home.schema) == old.home.now - timedelta(days=30)
    assert {table.rows_removed for table in old.maintain().tables} == {0}


def test_a_refusal_goes_with_the_message_that_its_report_became(home: Home) -> None:
    topic = f"placed-{home.batch}"
    reports = [report(topic, offset, failed_at=home.now).but(source="nobody") for offset in range(2)]
    placed, kept = home.append_reports(*reports)
    home.decide()
    refusals = {name: home.decisions()[name] for name in (placed, kept)}
    # as the loop writes it, under rules that know the source
    (again,) = home.append_reports(reports[0].but(source="failures", about=refusals[placed], detail=placed))
    home.decide()
    home.append_results(Result(home.decisions()[again], offset=7))
    home.later(days=40)
    home.append_tick(home.batch)
    old = Old(home, topic)
    old.maintain()
    left = {row["input_id"] for row in home.read("decisions")}
    assert left & {placed, kept, again} == {kept}
    assert old.events() == 1
    listed = {row["message_id"] for row in home.read("stranded_messages")}
    assert [row["message_id"] in listed for row in refusals.values()] == [False, True]


def unbalanced(home: Home) -> set[int]:
    """Batches that don't have one decision for each input."""
    home.spark.sql(f"use {home.schema}")
    inputs = INPUTS_BY_BATCH.format(first=0, watermark=home.batch)
    found = home.spark.sql(
        f"""
        with inputs as ({inputs}),
        decided as (select batch, count(distinct input_id) as decided from decisions where batch <= {home.batch} group by batch)
        select batch from inputs full outer join decided using (batch) where inputs is distinct from decided
        """
    )
    return {row["batch"] for row in found.collect()}


def test_a_run_that_was_interrupted_is_completed_by_the_next(old: Old, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = Retention._remove
    # other tests of this home write decisions without inputs
    unbalanced_before = unbalanced(old.home)

    def interrupted(self: Retention, table: str, where: str, first: Callable[[], None]) -> int | None:
        if table == "publish_results":
            raise KeyboardInterrupt
        return remove(self, table, where, first)

    with monkeypatch.context() as patch:
        patch.setattr(Retention, "_remove", interrupted)
        with pytest.raises(KeyboardInterrupt):
            old.maintain()
    assert old.rows("deliveries") == {*KEPT}
    assert old.rows("publish_results") == {0, 2, 4, 6}
    # nothing that was sent is open again
    assert old.rows("ready") == {3}
    old.maintain()
    assert old.rows("publish_results") == {2, 4, 6}
    assert unbalanced(old.home) <= unbalanced_before


def test_old_ticks_are_removed_but_for_the_last_and_those_of_starts(old: Old) -> None:
    home = old.home
    ticks = f"select count(*) as ticks from {home.schema}.ticks where kind = 'tick'"
    home.append_tick(home.batch)
    home.later(days=31)
    home.append_tick(home.batch)
    last = home.batch
    done = {table.table: table.rows_removed for table in old.maintain().tables}
    assert done["ticks"] >= 1
    assert home.spark.sql(ticks).collect()[0]["ticks"] >= 1
    assert home.spark.sql(f"select min(batch) as batch from {home.schema}.ticks where kind = 'tick'").collect()[0]["batch"] == last


@pytest.mark.slow
def test_what_tells_of_consumers_progress_stays_so_that_what_is_recovered_stays_so(old: Old) -> None:
    home = old.home
    topic = f"{old.topic}-recovered"
    (name,) = home.append_reports(report(topic, failed_at=home.now))
    home.decide()
    sent = home.decisions()[name]
    home.append_results(Result(sent, offset=7))
    home.append_tick(home.batch)
    home.spark.sql(
        f"update {home.schema}.publish_results set sent_at = recorded_at, consumer_group = 'billing' where original_topic = '{topic}'"
    )
    home.append_tick(home.batch, ("billing", sent["topic"], 0, 8))

    def message() -> tuple[object, ...]:
        (row,) = (row for row in home.read("messages") if row["original_topic"] == topic)
        return row["state"], row["recovered_at"]

    before = message()
    assert before[0] == "recovered"
    home.later(days=31)
    home.append_tick(home.batch)
    settings = old.settings.model_copy(update={"retention_days": 0})
    assert {table.table: table.rows_removed for table in maintain(settings, home.spark, home.now).tables}["ticks"] >= 1
    assert message() == before


@pytest.mark.slow
def test_of_old_ticks_that_tell_of_progress_only_the_last_of_each_partition_stays(old: Old) -> None:
    home = old.home
    places = [("billing", f"{old.topic}-retry", partition, offset) for partition, offset in ((0, 5), (1, 5), (0, 8))]
    batches = []
    for place in places:
        home.append_tick(home.batch, place)
        batches.append(home.batch)
    home.later(days=31)
    home.append_tick(home.batch, ("billing", f"{old.topic}-retry", 1, 6))
    home.append_tick(home.batch)

    def progress() -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in home.read("settled_offsets") if row["topic"] == f"{old.topic}-retry")

    before = progress()
    old.maintain()
    kept = {row["batch"] for row in home.read("ticks")}
    assert [batch in kept for batch in batches] == [False, False, True]
    assert progress() == before


@pytest.mark.slow
def test_of_old_ticks_that_tell_of_an_opening_of_a_circuit_breaker_only_the_last_stays(old: Old) -> None:
    home = old.home
    breaker = home.spark.table(f"{home.schema}.ticks").schema["circuit_breakers"].dataType.simpleString()
    batches: list[int] = []
    # two openings of the same circuit breaker
    for opened in (1, 1, 2):
        home.append_tick(home.batch)
        state = json.dumps(
            {old.topic: {"opened_at": f"2026-03-0{opened}T12:00:00Z", "error_class": "TimeoutError", "probes": len(batches)}}
        )
        home.spark.sql(f"update {home.schema}.ticks set circuit_breakers = from_json('{state}', '{breaker}') where batch = {home.batch}")
        batches.append(home.batch)
    home.later(days=31)
    home.append_tick(home.batch)

    def openings() -> list[tuple[object, ...]]:
        found = (row for row in home.read("circuit_breakers") if row["breaker_key"] == old.topic)
        return sorted((row["opened_at"], row["state"], row["probes"]) for row in found)

    before = openings()
    assert [probes for *_, probes in before] == [1, 2]
    old.maintain()
    kept = {row["batch"] for row in home.read("ticks")}
    assert [batch in kept for batch in batches] == [False, True, True]
    assert openings() == before


@pytest.mark.slow
def test_of_rows_of_outboxes_what_is_not_written_back_or_was_not_published_stays(old: Old) -> None:
    home, outbox = old.home, f"{old.topic}-outbox"
    topic = f"{outbox}.orders"

    def sent_directly(row_id: str) -> Result:
        message_id = f"outbox:{outbox}/{row_id}"
        given = {"delivery_id": f"{message_id}#direct", "due_at": home.now, "kind": "publish", "message_id": message_id, "topic": topic}
        return Result(Row(**given, original_topic=None, original_partition=None, original_offset=None), offset=7)

    def published(row_id: str) -> Result:
        (name,) = append_rows(home, {"row_id": row_id, "topic": topic}, outbox=outbox)
        home.decide()
        return Result(home.decisions()[name], offset=1)

    home.append_results(published("written"), sent_directly("written directly"))
    again = published("published again").delivery
    home.append_reports(order("cancel", published("cancelled").delivery), order("cancel", again))
    home.decide()
    home.append_results(sent_directly("published again"))
    written = home.batch
    home.append_results(published("not written"), sent_directly("not written directly"))
    home.later(days=35)
    # the row's decisions stay, as this one is young: so must the result that says that it was published after the end
    home.append_reports(order("note", again))
    home.decide()
    home.later(days=5)
    home.append_tick(home.batch, written={outbox: written})
    old.maintain()

    def left(table: str, column: str, where: str) -> set[str]:
        return {row["left"] for row in home.spark.sql(f"select {column} as left from {home.schema}.{table} where {where}").collect()}

    # a cancelled row may still be in a table that has no status
    assert left("events", "detail", f"source = '{outbox}'") == {"cancelled", "published again", "not written"}
    assert left("deliveries", "outbox_row", f"source = '{outbox}' and decision = 'publish'") == {
        "cancelled",
        "published again",
        "not written",
    }
    sent = left("publish_results", "message_id", f"topic = '{topic}'")
    assert sent == {f"outbox:{outbox}/{row}" for row in ("published again", "not written", "not written directly")}
    home.append_tick(home.batch, written={outbox: home.batch})
    old.maintain()
    assert left("events", "detail", f"source = '{outbox}'") == {"cancelled", "published again"}
    assert left("publish_results", "message_id", f"topic = '{topic}'") == {f"outbox:{outbox}/published again"}


@pytest.mark.slow
def test_without_a_retention_nothing_is_removed(old: Old) -> None:
    settings = old.settings.model_copy(update={"retention_days": 0})
    done = {table.table: table.rows_removed for table in maintain(settings, old.home.spark, old.home.now).tables}
    assert (done["deliveries"], done["publish_results"], done["events"]) == (0, 0, 0)
    assert old.rows("deliveries") == {*FINISHED, *KEPT}
