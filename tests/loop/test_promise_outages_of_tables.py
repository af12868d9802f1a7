"""Tables that do not work for a while, and answers that get lost: it waits, says so, loses nothing, and repeats only what is safe."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Timer
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, DataFrameWriterV2
from pyspark.sql.types import StructType

from orchestration.loop.health import LEDGERS
from orchestration.loop.intake import Intake
from orchestration.loop.loop import Loop
from orchestration.loop.sending import BulkLane
from orchestration.loop.stored import Stored
from orchestration.tables.decide_statements import DecideError, DecideRunner
from orchestration.tables.ledgers import AppendError, Ledgers
from tests.loop.harness import Redrive, deliveries

pytestmark = pytest.mark.long


def lock_catalog(state: Path) -> Callable[[], None]:
    """Another process that keeps the catalog's database to itself; returns how to end that."""
    other = sqlite3.connect(state / "catalog.db", isolation_level=None, check_same_thread=False)
    other.execute("begin exclusive")
    return other.close


def lose_directory(state: Path) -> Callable[[], None]:
    """A warehouse that can neither be written to nor read; returns how to end that."""
    directory = state / "warehouse" / "redrive" / "publish_results" / "data"
    moved = directory.rename(directory.with_name("gone"))
    directory.touch()

    def mend() -> None:
        directory.unlink()
        moved.rename(directory)

    return mend


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "fail", "seconds"),
    [pytest.param("busy", lock_catalog, 4, id="catalog locked"), pytest.param("unwritable", lose_directory, 8, id="warehouse gone")],
)
def test_what_was_sent_while_tables_cannot_be_written_is_not_sent_again(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch, what: str, fail: Callable[[Path], Callable[[], None]], seconds: int
) -> None:
    redrive.domain(what)
    send = BulkLane._send
    mending: list[Timer] = []

    def send_and_fail(self: BulkLane, *arguments: Any) -> DataFrame:
        results = send(self, *arguments)
        if not mending:
            mending.append(Timer(seconds, fail(redrive.loop.settings.home)))
            mending[0].start()
        return results

    # there has been a result before: the directory exists
    redrive.fails(f"{what}.orders", b"before", b"v")
    redrive.retries(what, 1)
    redrive.settle()
    monkeypatch.setattr(BulkLane, "_send", send_and_fail)
    for number in range(3):
        redrive.fails(f"{what}.orders", f"k{number}".encode(), b"v")
    redrive.retries(what, 4)
    mending[0].join()
    redrive.until(lambda: not redrive.loop.tick().did_something and not redrive.loop.health, "all is well again")
    sent = deliveries(redrive.read(f"{what}.orders-billing-retry"))
    assert len(sent) == 4
    assert set(sent.values()) == {1}
    states = redrive.sql(f"select state from messages where original_topic = '{what}.orders'")
    assert [row["state"] for row in states] == ["sent"] * 4


def _lock_results(monkeypatch: pytest.MonkeyPatch, times: int, meanwhile: Callable[[], None] = lambda: None) -> list[str]:
    """Refuses so many appends of results; what it returns grows with each."""
    append = Ledgers.append
    refused: list[str] = []

    def locked(self: Ledgers, ledger: str, rows: DataFrame, *when: Any) -> int:
        if ledger == "publish_results" and len(refused) < times:
            refused.append(ledger)
            meanwhile()
            raise AppendError("database is locked")
        return append(self, ledger, rows, *when)

    monkeypatch.setattr(Ledgers, "append", locked)
    return refused


def test_results_that_cannot_be_written_down_are_kept_and_nothing_is_sent_again(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive.domain("locked")
    refused = _lock_results(monkeypatch, 3)
    redrive.fails("locked.orders", b"k", b"v")
    assert len(redrive.retries("locked", 1)) == 1
    assert "database is locked" in redrive.loop.health[LEDGERS].why
    redrive.fails("locked.orders", b"other", b"v")
    redrive.until(lambda: redrive.loop.steps.publish.unrecorded is None and len(refused) == 3, "the results are written down in the end")
    redrive.retries("locked", 2)
    redrive.settle()
    assert set(deliveries(redrive.read("locked.orders-billing-retry")).values()) == {1}
    states = redrive.sql("select state from messages where original_topic = 'locked.orders'")
    assert [row["state"] for row in states] == ["sent", "sent"]
    assert LEDGERS not in redrive.loop.health


@pytest.mark.slow
def test_results_that_spark_has_lost_do_not_stop_the_loop(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive.domain("lost")

    def an_executor_dies() -> None:
        for kept in redrive.loop.spark.sparkContext._jsc.getPersistentRDDs().values():
            kept.unpersist(True)

    _lock_results(monkeypatch, 1, an_executor_dies)
    redrive.fails("lost.orders", b"k", b"v")
    redrive.until(lambda: redrive.loop.tick() and redrive.loop.steps.publish.unrecorded, "results that can't be appended")
    redrive.until(lambda: redrive.sql("select 1 from messages where original_topic = 'lost.orders' and state = 'sent'"), "it is sent again")
    redrive.settle()
    # the same delivery, twice: what a consumer must be able to cope with
    assert list(deliveries(redrive.read("lost.orders-billing-retry")).values()) == [2]
    assert LEDGERS not in redrive.loop.health


@pytest.mark.slow
def test_a_commit_whose_answer_got_lost_is_found_and_not_repeated(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive.domain("unheard")
    append = Ledgers.append
    unheard: list[int] = []

    def deaf(self: Ledgers, ledger: str, rows: DataFrame, *when: Any) -> int:
        if ledger == "publish_results" and not unheard:
            unheard.append(append(self, ledger, rows, *when))
            self.batch -= 1
            raise AppendError("connection reset")
        return append(self, ledger, rows, *when)

    monkeypatch.setattr(Ledgers, "append", deaf)
    redrive.fails("unheard.orders", b"k", b"v")
    redrive.retries("unheard", 1)
    redrive.until(lambda: redrive.loop.steps.publish.unrecorded is None and bool(unheard), "it is found")
    redrive.settle()
    assert len(redrive.sql("select 1 from publish_results where original_topic = 'unheard.orders'")) == 1
    assert len(redrive.read("unheard.orders-billing-retry")) == 1


@pytest.mark.slow
def test_steps_that_fail_after_they_have_written_lose_nothing(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive.domain("halfway")
    take, tick_row = Intake.take, Stored.row
    failed: list[str] = []

    def taken_and_failed(self: Intake, *what: Any) -> int:
        events = take(self, *what)
        if events and "take" not in failed:
            failed.append("take")
            raise RuntimeError("503 Service Unavailable")
        return events

    def no_row(self: Stored, *what: Any) -> pa.Table:
        if "take" in failed and "row" not in failed:
            failed.append("row")
            raise RuntimeError("503 Service Unavailable")
        return tick_row(self, *what)

    def decided_and_failed(self: DecideRunner, *what: Any) -> None:
        run(self, *what)
        if "decide" not in failed:
            failed.append("decide")
            # by the next decide run there are other rules: by these, the message would be sent elsewhere
            routes.write_text(routes.read_text().replace("-retry", "-retry-elsewhere"))
            raise DecideError("503 Service Unavailable")

    routes, run = redrive.loop.settings.seeds / "routes.csv", DecideRunner.run
    before = routes.read_text()
    monkeypatch.setattr(Intake, "take", taken_and_failed)
    monkeypatch.setattr(Stored, "row", no_row)
    monkeypatch.setattr(DecideRunner, "run", decided_and_failed)
    try:
        redrive.fails("halfway.orders", b"k", b"v")
        redrive.retries("halfway", 1)
        redrive.until(lambda: LEDGERS not in redrive.loop.health, "the tables are read and written again")
    finally:
        routes.write_text(before)
    assert sorted(failed) == ["decide", "row", "take"]
    assert set(deliveries(redrive.read("halfway.orders-billing-retry")).values()) == {1}
    assert len(redrive.sql("select 1 from events where topic = 'halfway.reports'")) == 1
    assert [row["topic"] for row in redrive.sql("select topic from deliveries where original_topic = 'halfway.orders'")] == [
        "halfway.orders-billing-retry"
    ]


@pytest.mark.long
@pytest.mark.slow
def test_what_is_not_known_to_be_sent_is_sent_again_by_the_next_loop_when_that_is_safe(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    redrive.domain("unanswered")
    with monkeypatch.context() as patched:
        patched.setattr(Loop, "_publish", lambda *_: None)
        redrive.fails("unanswered.orders", b"k", b"v")
        redrive.decided("unanswered", 1)
    loop = redrive.loop
    now = loop.clock.now()
    # long enough for a restart on a busy machine
    not_before = now + timedelta(seconds=120)
    (delivery,) = redrive.sql("select * from deliveries where original_topic = 'unanswered.orders'")
    result = {**{name: delivery[name] for name in ("delivery_id", "due_at", "kind", "topic", "original_topic")}, "outcome": "unknown"}
    schema = loop.spark.table(loop.ledgers.name("publish_results")).schema
    row = {**result, "not_before": not_before}
    frame = loop.spark.createDataFrame([tuple(row.values())], StructType([schema[name] for name in row]))
    loop.ledgers.append("publish_results", frame, now)

    redrive.restart()
    redrive.settle()
    assert redrive.loop.clock.now() < not_before, "the restart took too long for this test to say anything"
    assert redrive.read("unanswered.orders-billing-retry") == []
    (record,) = redrive.until(lambda: redrive.read("unanswered.orders-billing-retry"), "it is sent again", seconds=240)
    assert record.timestamp >= not_before.timestamp() * 1000
    redrive.settle()


@pytest.mark.slow
def test_an_append_that_lands_after_its_answer_got_lost_leaves_nothing_undecided(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive.domain("tardy")
    append, overwrite = Ledgers.append, DataFrameWriterV2.overwrite
    appends: list[str] = []
    late: list[Callable[[], None]] = []

    def noted(self: Ledgers, ledger: str, *what: Any) -> int:
        appends.append(ledger)
        return append(self, ledger, *what)

    def unanswered(self: DataFrameWriterV2, condition: Column) -> None:
        if appends[-1] == "events" and not late:
            late.append(lambda: overwrite(self, condition))
            raise ConnectionResetError("connection reset")
        overwrite(self, condition)
        if len(late) == 1:
            # after the next commit of this loop, whatever it is
            late.append(lambda: None)
            with pytest.raises(Exception, match="conflict"):
                late[0]()

    monkeypatch.setattr(Ledgers, "append", noted)
    monkeypatch.setattr(DataFrameWriterV2, "overwrite", unanswered)
    redrive.fails("tardy.orders", b"k", b"v")
    redrive.retries("tardy", 1)
    redrive.settle()
    assert len(late) == 2
    assert len(redrive.sql("select 1 from events where topic = 'tardy.reports'")) == 1
    assert len(redrive.sql("select 1 from decisions where report_topic = 'tardy.reports'")) == 1
    ledgers = " union all ".join(f"select distinct batch from {ledger}" for ledger in ("events", "ticks", "publish_results"))
    assert redrive.sql(f"select batch from ({ledgers}) group by batch having count(*) > 1") == []
