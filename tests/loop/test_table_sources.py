"""What a pipeline appends to an Iceberg table comes in as reports, each row once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration.loop.health import Part
from orchestration.rules.check import _tables
from orchestration.rules.seeds import read_seeds
from orchestration.tables.query import Tables
from orchestration.tables.spark import iceberg_table
from tests.loop.harness import Redrive

pytestmark = pytest.mark.long

SOURCES = """quarantine,table:quarantine.orders,redrive,,"^tables[a-z]*[.]orders$",earliest,true,
letters,table:quarantine.letters,auto,,"^tables[a-z]*[.]orders$",latest,true,dead
"""

COLUMNS = """
    key string, value binary, headers array<struct<key: string, value: binary>>, topic string, partition int, offset bigint,
    timestamp timestamp, consumer_group string, error_class string, error_message string, failed_at timestamp, batch_id bigint
"""

ROWS = """
insert into quarantine.orders
select
    case when id % 7 > 0 then concat('k', id) end, cast(concat('value ', id) as binary),
    case when id % 2 = 0 then array(struct('tenant', cast('acme' as binary)), struct('none', cast(null as binary))) end,
    '{topic}', 0, id, timestamp_millis(1767225600000 + id), 'billing', '{error}', concat('row ', id), now(), 1
from range({begin}, {end})
"""


@pytest.fixture(scope="module")
def tables(redrive: Redrive) -> Iterator[Redrive]:
    spark = redrive.loop.spark
    spark.sql("create namespace if not exists quarantine")
    spark.sql(f"create table quarantine.orders ({COLUMNS}) using iceberg")
    spark.sql("create table quarantine.letters (value string, headers map<string, string>, timestamp timestamp) using iceberg")
    spark.sql("insert into quarantine.letters values ('from before', map(), now())")
    seed = redrive.loop.settings.seeds / "sources.csv"
    before = seed.read_text(encoding="utf-8")
    seed.write_text(before + SOURCES, encoding="utf-8")
    redrive.domain("tables")
    redrive.settle()
    yield redrive
    seed.write_text(before, encoding="utf-8")
    redrive.settle()


def append(redrive: Redrive, begin: int, end: int, topic: str = "tables.orders", error: str = "TimeoutError") -> None:
    redrive.loop.spark.sql(ROWS.format(topic=topic, error=error, begin=begin, end=end))


def taken(redrive: Redrive, source: str = "quarantine") -> list[int]:
    """How many events there are of a source, and how many places they have."""
    (row,) = redrive.sql(
        f"select count(*) as events, count(distinct offset) as offsets from events where source = '{source}' and kind = 'report'"
    )
    return [row["events"], row["offsets"]]


def test_a_row_is_a_report_of_a_record_that_failed(tables: Redrive) -> None:
    append(tables, 6, 8)
    retries = {record.header("redrive-original-offset"): record for record in tables.retries("tables", 2)}
    six, seven = retries["6"], retries["7"]
    assert (six.key, six.value, six.own_headers) == (b"k6", b"value 6", (("tenant", b"acme"), ("none", None)))
    assert (seven.key, seven.value, seven.own_headers) == (None, b"value 7", ())
    (row,) = tables.sql("select * from decisions where message_id = 'billing:tables.orders/0/6'")
    assert (row["error_class"], row["error_message"], row["original_timestamp"].timestamp()) == ("TimeoutError", "row 6", 1767225600.006)
    # what the retry's consumer reports is about this message
    tables.report(six)
    tables.retries("tables", 3)
    (row,) = tables.sql("select max(attempt) as attempt from attempts where message_id = 'billing:tables.orders/0/6'")
    assert row["attempt"] == 2


@pytest.mark.slow
def test_each_row_comes_in_once_whatever_is_done_to_the_table(tables: Redrive, caplog: pytest.LogCaptureFixture) -> None:
    """Large and small appends, files that are merged, rows that are deleted, and another loop in the middle."""
    tables.domain("tablesmany")
    (before, _) = taken(tables)
    append(tables, 0, 3, "tablesmany.orders", "KeyError")
    append(tables, 3, 4, "tablesmany.orders", "KeyError")
    tables.loop.spark.sql("call system.rewrite_data_files(table => 'quarantine.orders', options => map('min-input-files', '1'))")
    append(tables, 4, 12_004, "tablesmany.orders", "KeyError")
    tables.loop.spark.sql("delete from quarantine.orders where offset = 2")
    append(tables, 12_004, 12_010, "tablesmany.orders", "KeyError")
    tables.loop.tick()
    assert taken(tables)[0] < before + 12_010
    tables.restart()
    tables.until(lambda: taken(tables)[0] >= before + 12_010, "all rows are taken in")
    tables.settle()
    assert taken(tables) == [before + 12_010, before + 12_010]
    (row,) = tables.sql("select count(distinct message_id) as n from decisions where original_topic = 'tablesmany.orders'")
    assert row["n"] == 12_010


def test_snapshots_that_expired_before_they_were_read_are_a_gap(tables: Redrive) -> None:
    tables.domain("tablesgap")
    (before, _) = taken(tables)
    for begin in (0, 1, 2):
        append(tables, begin, begin + 1, "tablesgap.orders")
    iceberg = iceberg_table(tables.loop.spark, "quarantine.orders")
    iceberg.refresh()
    current = iceberg.currentSnapshot()
    iceberg.expireSnapshots().expireOlderThan(current.timestampMillis()).retainLast(1).commit()
    tables.until(lambda: taken(tables)[0] > before, "what is left is taken in")
    tables.settle()
    assert taken(tables)[0] == before + 1
    (gap,) = tables.sql("select * from gaps where source = 'quarantine'")
    assert gap["topic"] == "table:quarantine.orders"
    tables.restart()
    tables.settle()
    assert taken(tables)[0] == before + 1
    assert len(tables.sql("select * from gaps where source = 'quarantine'")) == 1


@pytest.mark.slow
def test_what_was_read_may_expire_without_a_gap(tables: Redrive) -> None:
    spark = tables.loop.spark
    (before, _) = taken(tables)
    append(tables, 100, 101, "tablesgap.orders")
    tables.until(lambda: taken(tables)[0] > before, "it is taken in")
    tables.settle()
    iceberg = iceberg_table(spark, "quarantine.orders")

    def expire() -> None:
        iceberg.refresh()
        newest = iceberg.currentSnapshot().timestampMillis()
        iceberg.expireSnapshots().expireOlderThan(newest).retainLast(1).commit()

    # what appends nothing, and then what is not read yet, whose parent is gone
    spark.sql("call system.rewrite_data_files(table => 'quarantine.orders', options => map('min-input-files', '1', 'rewrite-all', 'true'))")
    # the table is looked at once a second
    time.sleep(1.1)
    tables.loop.tick()
    expire()
    append(tables, 101, 102, "tablesgap.orders")
    expire()
    tables.until(lambda: taken(tables)[0] == before + 2, "the next one is taken in")
    tables.settle()
    assert len(tables.sql("select * from gaps where source = 'quarantine'")) == 1


def test_a_source_with_start_latest_begins_with_what_is_appended_next(tables: Redrive) -> None:
    assert taken(tables, "letters")[0] == 0
    tables.loop.spark.sql("insert into quarantine.letters values ('a letter', map('kafka_dlt-original-topic', 'tables.orders'), now())")
    tables.until(lambda: taken(tables, "letters")[0] == 1, "the letter is taken in")


@pytest.mark.slow
def test_a_table_that_cannot_be_read_stops_no_other_source(tables: Redrive) -> None:
    spark = tables.loop.spark
    seeds = tables.loop.settings.seeds
    spark.sql("alter table quarantine.letters rename to quarantine.gone")
    # its data can't be read, but its metadata can
    append(tables, 200, 201, "tablesgap.orders")
    (newest,) = spark.sql("select data_file.file_path from quarantine.orders.entries order by sequence_number desc limit 1").collect()
    path = Path(newest["file_path"].removeprefix("file:"))
    aside = path.rename(path.with_suffix(".aside"))
    (before, _) = taken(tables)
    part = Part("source", "quarantine")
    tables.until(lambda: part in tables.loop.health, "the source is in trouble")
    assert Part("ledgers") not in tables.loop.health
    aside.rename(path)
    tables.until(lambda: taken(tables)[0] == before + 1, "the file is read")
    spark.sql("alter table quarantine.orders rename column offset to place")
    spark.sql("alter table quarantine.orders add column offset string")
    nulls = ", ".join(["null"] * 8)
    spark.sql(f"insert into quarantine.orders values (null, binary('text'), null, 'tables.orders', null, {nulls})")
    tables.until(lambda: part in tables.loop.health and Part("source", "letters") in tables.loop.health, "both are in trouble")
    found = {finding.what: finding for finding in _tables(read_seeds(seeds), Tables(tables.loop.settings))}
    assert "the column offset must be a whole number, and is string" in found["source quarantine"].found
    assert not found["source letters"].ok
    tables.domain("tablesothers")
    tables.fails("tablesothers.orders", b"k", b"v")
    tables.retries("tablesothers", 1)
    (before, _) = taken(tables)
    spark.sql("alter table quarantine.orders drop column offset")
    spark.sql("alter table quarantine.orders rename column place to offset")
    spark.sql("alter table quarantine.gone rename to quarantine.letters")
    tables.until(lambda: not tables.loop.health, "both are read again")
    assert taken(tables)[0] == before + 1
