"""Rows of outboxes in PostgreSQL are read as Arrow, and are the same as those that its driver reads; and by place, where places compare."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi

from orchestration.demo.postgres import Postgres
from orchestration.outbox import arrow_reader
from orchestration.outbox.database import OutboxTable
from orchestration.outbox.profiles import Outbox
from orchestration.outbox.states import OutboxError
from tests.loop.outbox_kit import TABLE, UUIDS, Shop, needs_postgres

pytestmark = needs_postgres

TYPES = {
    "texts": "id text, topic varchar(40), key char(6), value text, headers json, created_at timestamp, aggregate text, attempts smallint",
    "uuids": "id uuid, topic text, key uuid, value jsonb, headers text, created_at timestamptz, aggregate uuid, attempts int",
    "bytes": "id bigint, topic bytea, key bytea, value bytea, headers bytea, created_at timestamptz, aggregate bytea, attempts bigint",
    "numbers": "id smallint, topic kind, key bigint, value int, headers text, created_at timestamp, aggregate bigint, attempts bigint",
    "times": "id bigint, topic text, key date, value text, headers text, created_at timestamptz, aggregate timestamptz, attempts int",
    # types of which it isn't known that they are read the same way
    "others": "id numeric, topic text, key boolean, value numeric, headers jsonb, created_at date, aggregate float, attempts numeric",
}
"""The columns of tables, whose rows have the values of ROWS that their types take."""

ROWS: dict[str, list[tuple[Any, ...]]] = {
    "texts": [
        ("a", "orders", "ab ", "v ü\n", '{"a": 1.50, "x-message-id": "mine"}', "2026-03-01 12:00:00.000001", "7", 2),
        ("b", None, None, None, "{}", None, None, None),
        (" ä'%s\\", "", "", "", '{"n": null, "l": [1, "ü"]}', "infinity", "", -5),
    ],
    "uuids": [
        (
            uuid.UUID(int=7),
            "o",
            uuid.UUID(int=8),
            '{"b": "x \\" y", "a": [1, 2.50]}',
            "[1]",
            "2026-03-01 12:00:00+05:45",
            uuid.UUID(int=9),
            7,
        ),
        (uuid.UUID(int=6), "o", None, "null", "not JSON", "-infinity", None, 2_000_000),
        (uuid.UUID(int=5), "o", None, '" a b "', "null", "12000-01-01 UTC", None, 0),
    ],
    "bytes": [
        (1, b"orders", b"\x00\xff", b"\xff", b'{"a": "b"}', "2026-03-01 12:00:00.5+00", b"7", 99_999_999_999),
        (2, b"orders", None, None, None, "0044-03-15 BC", None, None),
        (3, b"orders", None, None, b"\xff{}", None, None, None),
    ],
    "numbers": [(3, "orders", 1, -2, None, "0001-01-01", 2**60, 3), (-4, "bills", None, None, "", "9999-12-31 23:59:59.999999", None, -3)],
    "times": [(1, "orders", None, "v", None, None, "2026-03-01 12:00:00.5+00", 1)],
    "others": [(1.50, "orders", True, 1.50, "{}", "2026-03-01", 0.1, 2.0), (2, None, None, None, None, None, None, None)],
}


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Shop]:
    made = Shop(postgres)
    made.sql("drop schema public cascade; create schema public; grant all on schema public to public")
    made.sql("create type kind as enum ('orders', 'bills')")
    yield made
    made.connection.close()


def outbox(shop: Shop, **row: str) -> OutboxTable:
    given = {
        "outbox": "o",
        "connection": "shop",
        "table": "orders_outbox",
        "profile": "plain",
        "columns": "",
        "topic": "",
        "write_back": "mark",
    }
    return OutboxTable(Outbox.of({**given, **row}, {"shop": shop.postgres.address}))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each read as Arrow, whether all rows that were asked for were read."""
    found: list[bool] = []
    keep = arrow_reader.ArrowReader._keep

    def noted(self: arrow_reader.ArrowReader, connection: dbapi.Connection, *, is_read: bool) -> None:
        found.append(is_read)
        keep(self, connection, is_read=is_read)

    monkeypatch.setattr(arrow_reader.ArrowReader, "_keep", noted)
    return found


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("topic", ["", "shop.{topic}.{aggregate}", "orders"])
def test_rows_are_the_same_as_those_of_the_driver(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, reads: list[bool], kind: str, topic: str
) -> None:
    shop.sql(f"create table t ({TYPES[kind]}, next_retry_at timestamptz, status text default 'pending')")
    for row in ROWS[kind]:
        shop.sql(f"insert into t values ({', '.join(['%s'] * len(row))})", *row)
    one = {"table": "t", "topic": topic}
    page = outbox(shop, **one).read(10)
    assert page.rows.num_rows == len(ROWS[kind])
    assert reads == ([] if kind in ("times", "others") else [True])
    parts = [outbox(shop, **one).read(10, without=["a", "1"]), outbox(shop, **one).read(1)]
    monkeypatch.setattr(OutboxTable, "_arrow", None)
    of_driver = outbox(shop, **one)
    assert page.rows.to_pylist() == of_driver.read(10).rows.to_pylist()
    assert page.rows.schema.equals(of_driver.read(10).rows.schema)
    assert page[1:] == of_driver.read(10)[1:]
    for part, expected in zip(parts, (of_driver.read(10, without=["a", "1"]), of_driver.read(1)), strict=True):
        assert (part.rows.to_pylist(), part[1:]) == (expected.rows.to_pylist(), expected[1:])
    # what comes after a place
    last = of_driver.read(1).last
    after = of_driver.read(10, after=last).rows.to_pylist()
    monkeypatch.undo()
    assert outbox(shop, **one).read(10, after=last).rows.to_pylist() == after


def test_a_read_that_breaks_off_is_done_by_the_driver(shop: Shop, monkeypatch: pytest.MonkeyPatch, reads: list[bool]) -> None:
    shop.sql(TABLE.format(name="orders_outbox"))
    ids = [str(shop.order("orders", f"{n}")) for n in range(3)]

    def breaks(self: arrow_reader._Left) -> Iterator[pa.RecordBatch]:
        yield from self._reader
        raise OSError("canceling statement due to statement timeout")

    monkeypatch.setattr(arrow_reader._Left, "__iter__", breaks)
    assert outbox(shop, profile="eventferry").read(10).rows.column("row_id").to_pylist() == ids
    assert reads == [False]


def test_texts_of_a_database_that_is_not_utf_8_are_the_same(shop: Shop) -> None:
    shop.sql("drop database if exists latin")
    shop.sql("create database latin encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0")
    address = shop.postgres.address.rsplit("/", 1)[0] + "/latin"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("create table t (id text, topic text, value text, headers text, status text)")
        connection.execute("insert into t values ('grün', 'o', 'ü', '{\"a\": \"ß\"}', 'pending')")
    given = {"outbox": "o", "connection": "c", "table": "t", "profile": "plain", "columns": "", "topic": "", "write_back": "mark"}
    (row,) = OutboxTable(Outbox.of(given, {"c": address})).read(10).rows.to_pylist()
    assert (row["row_id"], row["value"], row["headers"][0]["value"]) == ("grün", "ü".encode(), "ß".encode())


def test_bytes_that_are_no_text_are_read_by_the_driver(shop: Shop, reads: list[bool]) -> None:
    shop.sql("create table t (id int, topic bytea, value text, status text)")
    shop.sql("insert into t values (1, %s, 'v', 'pending')", b"ord\xffers")
    assert outbox(shop, table="t").read(10).rows.column("topic").to_pylist() == ["ord�ers"]
    assert reads == [False]


def test_a_page_that_ends_early_leaves_no_rows_to_the_next(shop: Shop, reads: list[bool]) -> None:
    shop.sql(TABLE.format(name="orders_outbox"))
    note = f'{{"note":"{"x" * 100_000}"}}'
    shop.sql("insert into orders_outbox (topic, aggregate_id, payload) select 'o', 'a', %s::jsonb from generate_series(1, 200)", note)
    table = outbox(shop, profile="eventferry")
    first = table.read(1_000, most_bytes=150_000)
    assert (first.rows.num_rows, first.is_all) == (2, False)
    assert table.read(3).rows.column("row_id").to_pylist() == ["1", "2", "3"]
    assert table.read(1_000, after=first.last).rows.num_rows == 198
    assert reads == [False, True, True]


def test_a_connection_that_was_lost_is_opened_again(shop: Shop, reads: list[bool]) -> None:
    shop.sql(TABLE.format(name="orders_outbox"))
    table = outbox(shop, profile="eventferry")
    for expected in range(1, 4):
        shop.order("orders", str(expected))
        assert table.read(10).rows.num_rows == expected
        shop.sql("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and usename = current_user")
    # the second was read by the driver
    assert reads == [True, False, True]


def test_an_error_quotes_no_value_and_no_address(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.sql("create table t (id int, topic text, value text, status text)")
    table = outbox(shop, table="t")
    assert table.read(10).rows.num_rows == 0
    shop.sql("alter table t rename column topic to subject")
    with caplog.at_level("DEBUG"), pytest.raises(OutboxError, match="topic"):
        table.read(10)
    (record,) = [record for record in caplog.records if "outbox_not_read_as_arrow" in record.getMessage()]
    assert "42703" in record.getMessage()
    assert shop.postgres.address not in record.getMessage()


@pytest.mark.parametrize(
    "column", ["created_at timestamptz", "created_at date not null default now()", "created_at bigint not null default 7"]
)
def test_where_places_are_not_certain_nothing_is_passed_over(shop: Shop, column: str) -> None:
    shop.sql(f"create table plain (id uuid primary key, topic text, value text, status text default 'pending', {column})")
    for _ in range(5):
        shop.sql("insert into plain (id, topic, value) values (gen_random_uuid(), 'orders', 'v')")
    page = outbox(shop, table="plain", profile="plain").read(2)
    assert (page.rows.num_rows, page.is_all, page.last) == (2, False, None)


def test_after_a_row_whose_time_is_bounded_nothing_is_passed_over(shop: Shop) -> None:
    shop.sql(UUIDS.format(name="events").replace("created_at timestamptz", "created_at timestamptz not null"))
    for moment in ("infinity", "infinity", "2026-03-01 12:00:00+00"):
        shop.sql(
            "insert into events (id, aggregatetype, aggregateid, payload, created_at) values (gen_random_uuid(), 'o', 'a', 'x', %s)", moment
        )
    table = outbox(shop, table="events", profile="debezium", columns="created_at=created_at", write_back="delete")
    assert [table.read(limit).last is None for limit in (1, 2)] == [False, True]
