"""Appends to the ledgers are guarded: a loop that is no longer in charge writes nothing, whatever it believes."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from orchestration.clock import LoopClock
from orchestration.loop.stored import Stored
from orchestration.tables.ledgers import LEDGERS, AppendError, Ledgers, TakenOverError
from tests.dbt.harness import Home

NOW = datetime(2026, 1, 1, tzinfo=UTC)
_schemas = itertools.count()


@pytest.fixture
def spark(home: Home) -> SparkSession:
    return home.spark


@pytest.fixture
def schema(spark: SparkSession) -> Iterator[str]:
    """Ledgers of the test's own: what two loops do to them is nobody else's business."""
    name = f"guarded{next(_schemas)}"
    spark.sql(f"create namespace {name}")
    for ledger in LEDGERS:
        spark.sql(f"create table {name}.{ledger} (id bigint, batch bigint, generation bigint, recorded_at timestamp) using iceberg")
    yield name
    for ledger in LEDGERS:
        spark.sql(f"drop table {name}.{ledger} purge")


def loop(spark: SparkSession, schema: str, generation: int) -> Ledgers:
    """What a loop knows after its start, before it has written anything."""
    ledgers = Ledgers(spark, schema, generation)
    ledgers.read_end()
    return ledgers


WAYS = {
    "spark": lambda spark, number: spark.createDataFrame([(number,)], "id bigint"),
    "arrow": lambda _, number: pa.table({"id": [number]}),
}


@pytest.fixture(autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How rows are appended: Spark writes them, or the loop itself."""
    monkeypatch.setattr(sys.modules[__name__], "row", WAYS[request.param])


def row(spark: SparkSession, number: int) -> DataFrame | pa.Table:
    """Replaced by the fixture `way`."""
    raise NotImplementedError


def ids(spark: SparkSession, schema: str, ledger: str) -> list[int]:
    return sorted(found["id"] for found in spark.table(f"{schema}.{ledger}").select("id").collect())


def take_over(spark: SparkSession, ledgers: Ledgers) -> None:
    for ledger in LEDGERS:
        ledgers.append(ledger, row(spark, 0), NOW)


def test_a_thread_that_has_run_no_statement_finds_the_ledgers(spark: SparkSession, schema: str) -> None:
    # as that of a shift in Dagster
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(loop, spark, schema, 1).result().batch == 0


def test_batches_count_over_all_ledgers(spark: SparkSession, schema: str) -> None:
    ledgers = loop(spark, schema, 1)
    assert [ledgers.append(ledger, row(spark, 7), NOW) for ledger in ("events", "ticks", "events", "publish_results")] == [1, 2, 3, 4]
    assert loop(spark, schema, 2).batch == 4
    assert ids(spark, schema, "events") == [7, 7]


@pytest.mark.parametrize("ledger", LEDGERS)
def test_an_older_loop_appends_to_no_ledger_once_another_has_taken_over(spark: SparkSession, schema: str, ledger: str) -> None:
    older = loop(spark, schema, 1)
    take_over(spark, older)
    take_over(spark, loop(spark, schema, 2))
    with pytest.raises(
        TakenOverError, match=f"generation 2 has taken over from generation 1: batch 4 was not appended to {ledger}"
    ) as refused:
        older.append(ledger, row(spark, 666), NOW)
    assert refused.value.by == 2
    assert 666 not in ids(spark, schema, ledger)


def test_an_older_loop_that_reads_the_tables_again_does_not_take_the_rows_of_a_newer_one_for_known(
    spark: SparkSession, schema: str
) -> None:
    older = loop(spark, schema, 1)
    take_over(spark, older)
    take_over(spark, loop(spark, schema, 2))
    with pytest.raises(TakenOverError, match="generation 2 has taken over from generation 1"):
        older.read_end()
    with pytest.raises(TakenOverError):
        older.append("publish_results", row(spark, 666), NOW)
    assert 666 not in ids(spark, schema, "publish_results")


def test_an_older_loop_that_has_counted_ahead_elsewhere_is_refused_too(spark: SparkSession, schema: str) -> None:
    older, newer = loop(spark, schema, 1), loop(spark, schema, 2)
    newer.append("ticks", row(spark, 0), NOW)
    for number in range(5):
        older.append("publish_results", row(spark, number), NOW)
    newer.append("events", row(spark, 0), NOW)
    assert newer.batch < older.batch
    with pytest.raises(TakenOverError):
        older.append("events", row(spark, 666), NOW)


def test_what_an_older_loop_still_appended_is_a_conflict_for_the_newer_until_it_has_been_read(spark: SparkSession, schema: str) -> None:
    older, newer = loop(spark, schema, 1), loop(spark, schema, 2)
    older.append("events", row(spark, 1), NOW)
    with pytest.raises(AppendError) as refused:
        newer.append("events", row(spark, 2), NOW)
    assert not isinstance(refused.value, TakenOverError)
    newer.read_end()
    assert newer.append("events", row(spark, 2), NOW) == 2
    assert ids(spark, schema, "events") == [1, 2]


def test_two_loops_that_start_at_once_do_not_get_the_same_generation(spark: SparkSession, schema: str) -> None:
    one, other = loop(spark, schema, 1), loop(spark, schema, 1)
    one.append("ticks", row(spark, 1), NOW)
    with pytest.raises(AppendError):
        other.append("ticks", row(spark, 2), NOW)


def test_maintenance_beside_a_loop_is_no_other_loop(spark: SparkSession, schema: str) -> None:
    ledgers = loop(spark, schema, 1)
    for number in range(6):
        ledgers.append("events", row(spark, number), NOW)
    done = spark.sql(f"call system.rewrite_data_files(table => '{schema}.events', options => map('min-input-files', '2'))").collect()[0]
    assert done["rewritten_data_files_count"] == 6
    assert ledgers.append("events", row(spark, 6), NOW) == 7
    assert ids(spark, schema, "events") == list(range(7))


def test_a_last_snapshot_that_has_expired_is_no_takeover(spark: SparkSession, schema: str) -> None:
    ledgers = loop(spark, schema, 1)
    ledgers.append("events", row(spark, 1), NOW)
    # two commits come after it, and all but the last are expired: whether somebody has appended since can't be told any more
    for _ in range(2):
        spark.sql(f"insert into {schema}.events select 2L, 0L, 0L, now()")
    spark.sql(f"call system.expire_snapshots(table => '{schema}.events', older_than => timestamp '2100-01-01 00:00:00', retain_last => 1)")
    with pytest.raises(AppendError) as refused:
        ledgers.append("events", row(spark, 3), NOW)
    assert not isinstance(refused.value, TakenOverError)
    ledgers.read_end()
    ledgers.append("events", row(spark, 3), NOW)
    assert ids(spark, schema, "events") == [1, 2, 2, 3]


def test_a_catalog_that_is_away_before_an_append_is_a_failed_append(
    spark: SparkSession, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledgers = loop(spark, schema, 1)

    def away(*_: object) -> DataFrame:
        raise RuntimeError("503 Service Unavailable")

    with monkeypatch.context() as patched:
        for name in ("_completed", "_completed_in_arrow"):
            patched.setattr(Ledgers, name, away)
        with pytest.raises(AppendError, match="503 Service Unavailable"):
            ledgers.append("events", row(spark, 1), NOW)
    assert ledgers.append("events", row(spark, 1), NOW) == 2


@dataclass
class LateCommit:
    """An append whose commit gets no answer, and may still land."""

    commit: Callable[[], None] = lambda: None

    def land(self) -> None:
        """What the catalog does with the commit in the end. Raises what it says against it."""
        self.commit()


@pytest.fixture
def unanswered(monkeypatch: pytest.MonkeyPatch) -> Callable[[Ledgers, str, DataFrame | pa.Table], LateCommit]:
    """Appends rows, and loses the answer before the commit has landed."""
    commits = {name: getattr(Ledgers, name) for name in ("_commit_of_spark", "_commit_of_arrow")}

    def append(ledgers: Ledgers, ledger: str, rows: DataFrame | pa.Table) -> LateCommit:
        late = LateCommit()

        def lost(name: str, *given: Any) -> Callable[[], None]:
            late.commit = commits[name](*given)
            return is_lost

        def is_lost() -> None:
            raise ConnectionResetError("connection reset")

        with monkeypatch.context() as patched:
            for name in commits:
                patched.setattr(Ledgers, name, lambda *given, name=name: lost(name, *given))
            with pytest.raises(AppendError, match="connection reset"):
                ledgers.append(ledger, rows, NOW)
        return late

    return append


Unanswered = Callable[[Ledgers, str, DataFrame | pa.Table], LateCommit]


@pytest.mark.parametrize("before", [0, 1], ids=["empty", "not empty"])
def test_a_number_whose_append_may_still_land_is_not_used_again(
    spark: SparkSession, schema: str, unanswered: Unanswered, before: int
) -> None:
    ledgers = loop(spark, schema, 1)
    for _ in range(before):
        ledgers.append("events", row(spark, 1), NOW)
    late = unanswered(ledgers, "events", row(spark, 2))
    ledgers.read_end()
    assert ledgers.in_doubt == ["events"]
    assert ledgers.certain == before, "what may still land must not be passed"
    assert ledgers.append("events", row(spark, 3), NOW) == before + 2
    assert (ledgers.in_doubt, ledgers.certain) == ([], before + 2)
    with pytest.raises(Exception, match="conflict"):
        late.land()
    assert ids(spark, schema, "events") == [1] * before + [3]
    assert ledgers.append("ticks", row(spark, 4), NOW) == before + 3


@pytest.mark.parametrize("ledger", LEDGERS)
def test_nothing_is_appended_elsewhere_before_it_is_known_what_landed(
    spark: SparkSession, schema: str, unanswered: Unanswered, ledger: str
) -> None:
    ledgers = loop(spark, schema, 1)
    take_over(spark, ledgers)
    late = unanswered(ledgers, ledger, row(spark, 1))
    ledgers.read_end()
    for other in sorted({*LEDGERS} - {ledger}):
        with pytest.raises(AppendError, match=f"it is not known yet whether batch 4 has been appended to {ledger}"):
            ledgers.append(other, row(spark, 666), NOW)
    # it lands while the end is settled: a conflict, and read
    late.land()
    with pytest.raises(AppendError):
        ledgers.append(ledger, row(spark, 2), NOW)
    ledgers.read_end()
    assert ledgers.in_doubt == []
    # the numbers of what was refused are used up
    assert [ledgers.append(other, row(spark, 3), NOW) for other in LEDGERS] == [8, 9, 10]
    assert ids(spark, schema, ledger) == [0, 1, 3]


def test_a_number_is_not_used_again_after_a_restart_either(spark: SparkSession, schema: str, unanswered: Unanswered) -> None:
    older = loop(spark, schema, 1)
    take_over(spark, older)
    late = unanswered(older, "events", row(spark, 1))
    newer = loop(spark, schema, 2)
    assert newer.append("ticks", row(spark, 0), NOW) == 4
    # between the first row of the next loop and its row in this ledger
    late.land()
    with pytest.raises(AppendError):
        newer.append("events", row(spark, 0), NOW)
    assert newer.read_end() == 5
    assert newer.append("events", row(spark, 0), NOW) == 6
    assert ids(spark, schema, "events") == [0, 0, 1]


def test_rows_that_could_not_be_made_leave_no_doubt(spark: SparkSession, schema: str) -> None:
    ledgers = loop(spark, schema, 1)
    with pytest.raises(AppendError, match="no such row"):
        ledgers.append("events", spark.sql("select raise_error('no such row') as id from range(3)"), NOW)
    assert ledgers.in_doubt == []
    # its number is used up all the same: another append under it would be taken for this one by whoever tries again
    assert ledgers.append("ticks", row(spark, 1), NOW) == 2


def test_of_two_writers_none_takes_the_append_of_the_other_for_its_own(spark: SparkSession, schema: str) -> None:
    ledgers, tried = loop(spark, schema, 1), list[int]()
    with pytest.raises(AppendError, match="no such row"):
        ledgers.append_once("events", spark.sql("select raise_error('no such row') as id from range(3)"), NOW, tried)
    ledgers.append("events", row(spark, 1), NOW)
    ledgers.append_once("events", row(spark, 2), NOW, tried)
    assert ids(spark, schema, "events") == [1, 2]
    # nothing is appended again that is there
    ledgers.append_once("events", row(spark, 2), NOW, tried)
    assert ids(spark, schema, "events") == [1, 2]


def test_an_append_is_counted_though_its_snapshot_cannot_be_looked_up(
    spark: SparkSession, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledgers = loop(spark, schema, 1)
    ledgers.append("events", row(spark, 1), NOW)

    def away(*_: object) -> int:
        raise RuntimeError("503 Service Unavailable")

    with monkeypatch.context() as patched:
        patched.setattr(Ledgers, "_snapshot_of", away)
        assert ledgers.append("events", row(spark, 2), NOW) == 2
    assert ledgers.append("ticks", row(spark, 3), NOW) == 3
    assert ledgers.append("events", row(spark, 4), NOW) == 4
    assert ids(spark, schema, "events") == [1, 2, 4]


def test_the_last_row_of_ticks_is_found_without_reading_the_others(spark: SparkSession, schema: str) -> None:
    ledgers = loop(spark, schema, 1)
    for number in range(4):
        ledgers.append("ticks", row(spark, number), NOW)
        ledgers.append("events", row(spark, number), NOW)
    starting = Stored(spark, schema, loop(spark, schema, 1), LoopClock(None))
    # what is not there can't be read
    files = spark.sql(f"select file_path, readable_metrics.batch.upper_bound as batch from {schema}.ticks.files").collect()
    assert len(files) == 4
    for file in files:
        if file["batch"] < 7:
            Path(file["file_path"].removeprefix("file:")).unlink()
    last = starting.last_row()
    assert last is not None
    assert (last["id"], last["batch"]) == (3, 7)


def test_ticks_without_a_row_have_no_last_one(spark: SparkSession, schema: str) -> None:
    starting = Stored(spark, schema, loop(spark, schema, 1), LoopClock(None))
    assert starting.last_row() is None
