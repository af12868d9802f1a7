"""What is read of an outbox table and written back, on a real PostgreSQL: values of all types, rights, errors in words, purging.

Longer than other modules: each case is one table, and the table is what they share.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from orchestration.demo.postgres import Postgres
from orchestration.outbox import engine
from orchestration.outbox.database import OutboxTable
from orchestration.outbox.profiles import PROFILES, Outbox, objection_to_columns
from orchestration.outbox.states import Lag, OutboxError, RowState
from tests.loop.outbox_kit import DEAD, DONE, FAILED, PROCESSING, TABLE, UUIDS, Shop, needs_postgres

pytestmark = needs_postgres

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Shop]:
    made = Shop(postgres)
    made.sql("drop schema public cascade; create schema public; grant all on schema public to public")
    made.sql(TABLE.format(name="orders_outbox"))
    yield made
    made.connection.close()


def outbox(shop: Shop, **row: str) -> OutboxTable:
    """An outbox table, by a row of the seed."""
    given = {
        "outbox": "orders", "connection": "shop", "table": "orders_outbox", "profile": "eventferry", "columns": "", "topic": "",
        "write_back": "mark", **row,
    }  # fmt: skip
    return OutboxTable(Outbox.of(given, {"shop": shop.postgres.address}))


def test_values_arrive_as_they_are(shop: Shop) -> None:
    shop.sql("create table plain (id text primary key, topic text, key bytea, value bytea, headers text, aggregate text, status text)")
    insert = "insert into plain values (%s, 'orders', %s, %s, %s, %s, 'pending')"
    shop.sql(insert, "b", b"\x00\xff", b"\xff\x00", '{"a": "x", "n": 1.50, "nothing": null, "list": [1, "ü"]}', None)
    shop.sql(insert, "a", None, None, None, "7")
    rows = outbox(shop, table="plain", profile="plain").read(10)[0].to_pylist()
    assert [(row["row_id"], row["key"], row["value"], row["sequence"]) for row in rows] == [
        ("a", None, None, "orders/orders/7"),
        ("b", b"\x00\xff", b"\xff\x00", None),
    ]
    assert {one["key"]: one["value"] for one in rows[1]["headers"]} == {
        "a": b"x", "n": b"1.5", "nothing": None, "list": '[1,"ü"]'.encode(), "x-message-id": b"b",
    }  # fmt: skip
    assert (rows[0]["created_at"], rows[0]["attempts"], rows[0]["next_retry_at"]) == (None, None, None)


@pytest.mark.parametrize(
    ("given", "headers"),
    [
        ("{}", {}),
        ("null", {}),
        ("[1]", {"headers": b"[1]"}),
        ("not JSON", {"headers": b"not JSON"}),
        ('{"half": "a\\ud800b"}', {"half": b"a?b"}),
        ('{"ha\\udc00lf": 1}', {"ha?lf": b"1"}),
    ],
)
def test_headers_that_are_none_are_not_lost_and_stop_no_row(shop: Shop, given: str, headers: dict[str, bytes]) -> None:
    shop.sql("create table plain (id int primary key, topic text, value text, headers text, attempts bigint, status text)")
    shop.sql("insert into plain values (1, 'orders', 'v', %s, 99999999999, 'pending')", given)
    (row,) = outbox(shop, table="plain", profile="plain").read(10)[0].to_pylist()
    assert {one["key"]: one["value"] for one in row["headers"]} == {**headers, "x-message-id": b"1"}
    assert row["attempts"] == 1_000


def test_times_without_a_zone_are_utc_whatever_the_zone_of_the_server(shop: Shop) -> None:
    shop.sql("alter role shop set timezone = 'Asia/Kathmandu'")
    try:
        shop.sql(
            "create table plain (id int primary key, topic text, value text, created_at timestamp, next_retry_at timestamp, status text)"
        )
        shop.sql("insert into plain values (1, 'orders', 'v', '2026-03-01 12:00:00', null, 'pending')")
        table = outbox(shop, table="plain", profile="plain")
        (row,) = table.read(10)[0].to_pylist()
        assert row["created_at"] == NOW
        table.write([RowState("1", "failed", 1, NOW + timedelta(seconds=4))], NOW)
        assert shop.sql("select next_retry_at::text as at from plain") == [{"at": "2026-03-01 12:00:04"}]
    finally:
        shop.sql("alter role shop reset timezone")


def test_json_has_no_blanks_between_and_all_its_digits(shop: Shop) -> None:
    shop.order("orders", payload='{"n": 12345678901234567890.10, "text": "a b \\" c:  d", "list": [1, 2]}')
    (row,) = outbox(shop).read(10)[0].to_pylist()
    # jsonb puts shorter names first
    assert row["value"] == b'{"n":12345678901234567890.10,"list":[1,2],"text":"a b \\" c:  d"}'


def test_rows_come_in_the_order_of_numbers_or_of_their_creation(shop: Shop) -> None:
    for n in range(12):
        shop.order("orders", str(n))
    assert [row["row_id"] for row in outbox(shop).read(11)[0].to_pylist()] == [str(n) for n in range(1, 12)]
    shop.sql(UUIDS.format(name="events"))
    ids = sorted((uuid.uuid4() for _ in range(10)), reverse=True)
    for place, one in enumerate(ids):
        shop.sql("insert into events (id, aggregatetype, aggregateid, payload, created_at) values (%s, 'o', 'a', 'x', %s)", one,
                 NOW + timedelta(seconds=place))  # fmt: skip
    table = outbox(shop, table="events", profile="debezium", columns="created_at=created_at", write_back="delete")
    rows = table.read(100, without={str(ids[0])})[0].to_pylist()
    assert [row["row_id"] for row in rows] == [str(one) for one in ids[1:]]
    assert rows[0]["topic"] == "outbox.event.o"
    assert table.write([RowState(str(ids[0]), "done"), RowState(str(ids[1]), "failed", attempts=1)], NOW) == 0
    assert len(shop.sql("select 1 from events")) == 9


def test_what_another_relay_left_as_failed_is_read_when_it_is_adopted(shop: Shop) -> None:
    left = shop.order("orders", status=FAILED, attempts=2, next_retry_at=NOW)
    shop.order("orders", status=DEAD)
    assert outbox(shop).read(10)[0].num_rows == 0
    (row,) = outbox(shop).read(10, adopts=True)[0].to_pylist()
    assert (row["row_id"], row["attempts"], row["next_retry_at"]) == (str(left), 2, NOW)


def test_what_was_adopted_is_passed_over_page_by_page(shop: Shop) -> None:
    ids = [str(shop.order("orders", status=FAILED, attempts=2, next_retry_at=NOW)) for _ in range(12)]
    table, adopted = outbox(shop), {*ids[3:9]}
    found: list[tuple[list[str], bool]] = []
    after = None
    for _ in range(7):
        page = table.read(2, adopted, adopts=True, after=after)
        found.append((page.rows.column("row_id").to_pylist(), page.is_all))
        after = page.last
    assert found == [(ids[:2], False), (ids[2:3], False), ([], False), ([], False), (ids[9:10], False), (ids[10:], False), ([], True)]


def test_states_are_written_back_and_may_be_repeated(shop: Shop) -> None:
    ids = [shop.order("orders") for _ in range(5)]
    later = NOW + timedelta(seconds=4)
    states = [
        RowState(str(ids[0]), "processing"),
        RowState(str(ids[1]), "failed", 2, later, "no answer"),
        RowState(str(ids[2]), "done"),
        RowState(str(ids[3]), "dead", 5, None, "too large"),
        RowState("4711", "done"),
    ]
    table = outbox(shop, columns="last_error=last_error")
    for _ in range(2):
        assert table.write(states, NOW) == 1
        rows = shop.rows(ids)
        assert [rows[one]["status"] for one in ids] == [PROCESSING, FAILED, DONE, DEAD, 0]
        assert (rows[ids[0]]["claimed_at"], rows[ids[2]]["processed_at"]) == (NOW, NOW)
        failed, dead = rows[ids[1]], rows[ids[3]]
        assert (failed["attempts"], failed["next_retry_at"], failed["claimed_at"], failed["last_error"]) == (2, later, None, "no answer")
        assert (dead["attempts"], dead["next_retry_at"], dead["last_error"]) == (5, None, "too large")
    # what has not changed stays
    table.write([RowState(str(ids[1]), "dead")], NOW)
    assert (shop.rows()[ids[1]]["attempts"], shop.rows()[ids[1]]["last_error"]) == (2, "no answer")
    # Kafka may take the dead letter of a row after that was redriven and published
    assert table.write([RowState(str(ids[2]), "dead")], NOW) == 0
    assert shop.rows()[ids[2]]["status"] == DONE
    # that a row was taken in may be written back after it was published: by a loop that is behind
    done = shop.rows()[ids[2]]
    assert table.write([RowState(str(ids[2]), "processing")], NOW + timedelta(seconds=1)) == 0
    assert shop.rows()[ids[2]] == done


@pytest.mark.parametrize("write_back", ["mark", "delete"])
def test_rows_that_the_database_keeps_as_they_are_are_no_deleted_rows(shop: Shop, write_back: str) -> None:
    """They would be published again with each look."""
    ids = [str(shop.order("orders")) for _ in range(2)]
    table = outbox(shop, write_back=write_back)
    shop.sql("create function keep() returns trigger language plpgsql as 'begin return null; end'")
    shop.sql("create trigger keep before update or delete on orders_outbox for each row execute function keep()")
    kept = "rows of orders_outbox were published and can't be updated or deleted"
    with pytest.raises(OutboxError, match=kept):
        table.mark(ids, NOW)
    with pytest.raises(OutboxError, match=kept):
        table.write([RowState(ids[0], "done")], NOW)
    assert table.mark(["4711"], NOW) == 1, "one that is gone"


def test_a_purge_that_deletes_nothing_ends(shop: Shop) -> None:
    shop.order("orders", status=DONE, processed_at=NOW - timedelta(days=8))
    shop.sql("create function keep() returns trigger language plpgsql as 'begin return null; end'")
    shop.sql("create trigger keep before delete on orders_outbox for each row execute function keep()")
    with pytest.raises(OutboxError, match="old rows of orders_outbox can't be updated or deleted"):
        list(outbox(shop).purge(NOW))


def test_published_rows_are_purged_when_they_are_old(shop: Shop) -> None:
    old = [shop.order("orders", status=DONE, processed_at=NOW - timedelta(days=8)) for _ in range(3)]
    kept = [
        shop.order("orders", status=DONE, processed_at=NOW - timedelta(days=6)),
        shop.order("orders", status=DEAD, processed_at=NOW - timedelta(days=8)),
        shop.order("orders"),
    ]
    assert sum(outbox(shop).purge(NOW - timedelta(days=7))) == len(old)
    assert [*shop.rows()] == kept


def test_times_beyond_all_calendars_stop_no_row(shop: Shop) -> None:
    shop.order("orders", next_retry_at="infinity")
    ids = [shop.order("orders", created_at=moment) for moment in ("infinity", "-infinity", "12000-01-01 UTC", "0044-03-15 BC")]
    rows = outbox(shop).read(10)[0].to_pylist()
    assert [row["row_id"] for row in rows] == [str(row_id) for row_id in ids]
    assert [row["created_at"].year for row in rows] == [9999, 1, 9999, 1]


def test_how_far_it_is_behind(shop: Shop) -> None:
    assert (outbox(shop).lag().pending, outbox(shop).lag().oldest_seconds) == (0, 0)
    row_id = shop.order("orders", created_at=datetime.now(UTC) - timedelta(seconds=100))
    shop.order("orders", status=DONE)
    lag = outbox(shop).lag()
    assert lag.pending == 1
    assert 99 < (lag.oldest_seconds or 0) < 160
    # of a table without a status, the loop knows which rows it has taken
    kept = shop.order("orders", created_at=datetime.now(UTC) - timedelta(days=1))
    assert (outbox(shop).lag().oldest_seconds or 0) > 80_000
    others = outbox(shop).lag([str(kept)])
    assert (others.pending, (others.oldest_seconds or 0) < 160) == (1, True)
    assert outbox(shop).lag([str(kept), str(row_id)]) == Lag(0, 0)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"connection": "other"}, "REDRIVE_CONNECTIONS__OTHER"),
        ({"table": "nowhere"}, "there is no table nowhere"),
        ({"columns": "value=body"}, "has no column 'body' (value); it has id, message_id,"),
        ({"columns": "topic="}, "names no column for topic"),
        ({"topic": "orders.{kind}"}, "lacks: kind"),
    ],
)
def test_what_is_wrong_is_said_in_words(shop: Shop, row: dict[str, str], said: str) -> None:
    with pytest.raises(OutboxError) as refused:
        outbox(shop, **row).read(1)
    assert said in str(refused.value)
    assert shop.postgres.address not in str(refused.value)


def test_a_server_that_is_not_there_is_named_without_its_address(shop: Shop) -> None:
    given = {
        "outbox": "o", "connection": "c", "table": "t", "profile": "eventferry", "columns": "", "topic": "", "write_back": "mark",
    }  # fmt: skip
    for address, said in (
        ("postgresql://u:verysecret@127.0.0.1:1/x", "connection"),
        ("nosuchdatabase://u:verysecret@h/x", "the connection 'c' can't be used"),
        ("mysql+nosuchdriver://u:verysecret@h/x", "the connection 'c' can't be used"),
    ):
        with pytest.raises(OutboxError) as refused:
            OutboxTable(Outbox.of(given, {"c": address})).read(1)
        assert said in str(refused.value).lower()
        assert "verysecret" not in str(refused.value)


def test_rights_and_an_index_are_checked(shop: Shop) -> None:
    assert outbox(shop).problems() == ([], [])
    shop.sql("drop role if exists reader")
    shop.sql("create role reader login")
    shop.sql("grant select on orders_outbox to reader")
    reader = OutboxTable(
        outbox(shop).outbox.__class__(**{**vars(outbox(shop).outbox), "address": shop.postgres.address.replace("shop@", "reader@")})
    )
    problems, _ = reader.problems()
    assert len(problems) == 1
    assert "permission denied" in problems[0]
    shop.sql("create table bare (id bigint primary key, topic text, payload jsonb, status smallint)")
    assert outbox(shop, table="bare").problems() == (
        [],
        ["no index begins with the status: each look for pending rows reads the whole table"],
    )


def test_a_table_that_cannot_be_purged_is_found_before_it_is_to_be(shop: Shop) -> None:
    shop.sql(UUIDS.format(name="events_outbox"))
    events = {"table": "events_outbox", "profile": "debezium", "topic": "events", "write_back": "delete"}
    assert outbox(shop, **events).problems()[0] == []
    wrong = "the table events_outbox can't be purged without status and processed_at"
    assert outbox(shop, **events, purge_after="7d").problems()[0] == [wrong]


def test_an_error_of_the_driver_while_it_connects_stops_one_outbox_with_words(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise psycopg.OperationalError("shutting down")

    monkeypatch.setattr(engine, "_use_utc", fails)
    with pytest.raises(OutboxError, match="OperationalError: shutting down"):
        outbox(shop).read(1)


def test_any_driver_is_asked_for_utc() -> None:
    # a connection has no more than this by the standard for drivers (PEP 249)
    connection = Mock(spec=["cursor", "commit"])
    engine._use_utc(connection, None)
    assert [name for name, _, _ in connection.mock_calls] == ["cursor", "cursor().execute", "cursor().close", "commit"]


def test_a_table_that_would_be_published_again_and_again_is_refused(shop: Shop) -> None:
    # the second one marks rows in a column that says nothing to a reader
    shop.sql("create table rows (id bigint primary key, payload text, aggregatetype text)")
    shop.sql("create table marked (id bigint primary key, topic text, payload text, processed_at timestamptz)")
    for row in ({"table": "rows", "profile": "debezium"}, {"table": "marked"}):
        with pytest.raises(OutboxError, match="the table has no status: write_back must be delete"):
            outbox(shop, **row).read(1)
        outbox(shop, **row, write_back="delete").read(1)


def test_a_part_is_read_that_is_bounded_in_rows_and_bytes(shop: Shop) -> None:
    ids = [shop.order("orders", payload=json.dumps({"note": "x" * 1_000})) for _ in range(5)]
    for limit, most_bytes, count, is_all in (
        (10, None, 5, True),
        (5, None, 5, False),
        (3, None, 3, False),
        (10, 1_500, 2, False),
        (10, 1, 1, False),
    ):
        rows, found_all, _ = outbox(shop).read(limit, most_bytes=most_bytes)
        assert (rows.num_rows, found_all) == (count, is_all), (limit, most_bytes)
    rows, found_all, _ = outbox(shop).read(2, without={str(ids[0]), str(ids[4])})
    assert rows.column("row_id").to_pylist() == [str(ids[1]), str(ids[2])]
    assert not found_all


def test_states_are_written_back_in_parts_also_those_that_differ_from_row_to_row(shop: Shop) -> None:
    shop.sql("insert into orders_outbox (topic, aggregate_id, payload) select 'orders', 'a', '{}'::jsonb from generate_series(1, 6000)")
    table = outbox(shop, columns="last_error=last_error")
    ids = table.read(6_000)[0].column("row_id").to_pylist()
    states = [RowState(one, "failed", place % 7, NOW + timedelta(seconds=place), f"error {place}") for place, one in enumerate(ids)]
    parts = [*table.parts([*states, RowState("999999", "dead", 5, None, "gone")])]
    assert [len(part) for part in parts] == [5_000, 1_001]
    for _ in range(2):
        assert [table.write(part, NOW) for part in parts] == [0, 1]
    row = shop.rows([int(ids[5_500])])[int(ids[5_500])]
    assert (row["status"], row["attempts"], row["next_retry_at"], row["last_error"]) == (
        FAILED,
        5_500 % 7,
        NOW + timedelta(seconds=5_500),
        "error 5500",
    )
    # without a time and a text, the others of the row are as they were
    table.write([RowState(ids[0], "dead")], NOW)
    row = shop.rows([int(ids[0])])[int(ids[0])]
    assert (row["status"], row["attempts"], row["next_retry_at"], row["last_error"]) == (DEAD, 0, None, "error 0")


def test_a_text_that_is_longer_than_its_column_is_cut(shop: Shop) -> None:
    shop.sql("alter table orders_outbox alter column last_error type varchar(40)")
    row_id = shop.order("orders")
    outbox(shop, columns="last_error=last_error").write([RowState(str(row_id), "dead", 1, None, "x" * 1_000)], NOW)
    assert [row["last_error"] for row in shop.rows().values()] == ["x" * 40]


def test_a_table_that_its_owner_changes_is_read_again(shop: Shop) -> None:
    shop.order("orders")
    table = outbox(shop)
    assert table.read(1)[0].num_rows == 1
    shop.sql("alter table orders_outbox drop column trace_id")
    with pytest.raises(OutboxError):
        table.read(1)
    assert table.read(1)[0].num_rows == 1


def test_values_that_no_program_expects_stop_one_outbox_with_words(shop: Shop) -> None:
    deep = '{"h": ' + "[" * 20_000 + "]" * 20_000 + "}"
    shop.sql("create table texts (id bigint primary key, topic text, value text, headers text, status text, attempts text)")
    shop.sql("insert into texts values (1, 'orders', 'v', %s, 'pending', '2')", deep)
    (row,) = outbox(shop, table="texts", profile="plain").read(1)[0].to_pylist()
    assert row["attempts"] == 2
    assert row["headers"][0] == {"key": "headers", "value": deep.encode()}
    shop.sql("update texts set attempts = 'several'")
    with pytest.raises(OutboxError, match="the row 1 can't be read: ValueError") as refused:
        outbox(shop, table="texts", profile="plain").read(1)
    assert "several" not in str(refused.value)
    shop.sql("create table numbers (id bigint primary key, topic text, value text, status int)")
    with pytest.raises(OutboxError, match=r"the status 'pending' \(pending\) is no value of the column status, which is INTEGER"):
        outbox(shop, table="numbers", profile="plain").read(1)
    shop.sql("create table binary_ids (id bytea primary key, topic text, value text, status text)")
    with pytest.raises(OutboxError, match="the ids of the table binary_ids are bytes"):
        outbox(shop, table="binary_ids", profile="plain").read(1)


def test_profiles_and_cells_of_the_seed() -> None:
    assert set(PROFILES) == {"eventferry", "debezium", "plain"}
    assert objection_to_columns("id=event_id status.pending=NEW last_error=") is None
    for wrong in ("id", "body=x", "status.new=1"):
        assert "must be field=column" in (objection_to_columns(wrong) or "")
    made: dict[str, Any] = {"outbox": "o", "connection": "c", "table": "t", "topic": "", "write_back": "mark"}
    one = Outbox.of({**made, "profile": "eventferry", "columns": "key= status.pending=9 value=body"}, {})
    assert "key" not in one.profile.columns
    assert (one.profile.statuses["pending"], one.profile.columns["value"], one.address) == ("9", "body", None)


def test_a_header_has_the_column_that_the_table_has_for_its_field(shop: Shop) -> None:
    shop.sql("create table renamed (uid text primary key, id text, topic text, value bytea, status text)")
    shop.sql("insert into renamed values ('row-1', 'something else', 'orders', 'v', 'pending')")
    (row,) = outbox(shop, table="renamed", profile="plain", columns="id=uid key= headers= aggregate=").read(10)[0].to_pylist()
    assert (row["row_id"], {one["key"]: one["value"] for one in row["headers"]}) == ("row-1", {"x-message-id": b"row-1"})
