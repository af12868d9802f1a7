"""Rows of outbox tables are published, each once and in their order, as the relay's pages say, and what became of them is written back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest

from orchestration.demo.broker import Broker
from orchestration.demo.postgres import Postgres, programs
from tests.loop.harness import Redrive, Topics
from tests.loop.outbox_kit import DEAD, DONE, FAILED, TABLE, UUIDS, Shop, start

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed (Debian: apt-get install postgresql)"),
]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as running:
        yield running


@pytest.fixture(scope="module")
def shop(postgres: Postgres) -> Shop:
    made = Shop(postgres)
    made.sql(TABLE.format(name="orders_outbox"))
    made.sql(UUIDS.format(name="events_outbox"))
    # another relay has left these
    made.order("outboxadopted.orders", "left", status=FAILED, attempts=3, next_retry_at=datetime.now(UTC))
    made.order("outboxadopted.orders", "left", status=DONE)
    return made


@pytest.fixture(scope="module")
def redrive(
    broker: Broker, shop: Shop, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Redrive]:
    """A loop with its timed lane: rows of outboxes go another way than retries."""
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    topics = Topics(kafka)
    topics.domain("outboxadopted")
    topics.close()
    running = start(kafka, tmp_path_factory.mktemp("outbox"), pytestconfig.rootpath, postgres)
    yield running
    running.close()


def done(redrive: Redrive, shop: Shop, *ids: int, status: int = DONE) -> None:
    """Runs ticks until rows have a status."""
    redrive.until(lambda: all(row["status"] == status for row in shop.rows(ids).values()), f"the rows {ids} are {status}")


def test_a_row_is_published_with_its_headers_and_marked_as_done(redrive: Redrive, shop: Shop) -> None:
    redrive.domain("outboxfirst")
    with_key = shop.order(
        "outboxfirst.orders", "7", '{"b": 1.10, "a": "x y"}', key="k", headers='{"tenant": "acme", "n": 1}', trace_id="t-1"
    )
    without = shop.order("outboxfirst.orders", "8")
    done(redrive, shop, with_key, without)
    first, second = redrive.read("outboxfirst.orders")
    # jsonb has an order of its own
    assert (first.key, first.value) == (b"k", b'{"a":"x y","b":1.10}')
    assert (second.key, second.value) == (b"8", b'{"n":1}')
    row = shop.rows()[with_key]
    assert dict(first.own_headers) == {
        "tenant": b"acme",
        "n": b"1",
        "content-type": b"application/json",
        "message-id": str(row["message_id"]).encode(),
        "x-message-id": str(row["message_id"]).encode(),
        "aggregate-type": b"Order",
        "aggregate-id": b"7",
        "trace-id": b"t-1",
    }
    assert (row["attempts"], row["next_retry_at"], row["last_error"]) == (0, None, None)
    assert abs((row["processed_at"] - datetime.now(UTC)).total_seconds()) < 120
    (message,) = redrive.sql(f"select * from messages where message_id = 'outbox:orders/{with_key}'")
    assert (message["state"], message["attempts"], message["life_cycle"]) == ("sent", 0, 1)


def test_what_another_relay_has_left_as_failed_goes_on_with_its_count(redrive: Redrive, shop: Shop) -> None:
    left = next(one for one, row in shop.rows().items() if row["topic"] == "outboxadopted.orders")
    done(redrive, shop, left)
    (decision,) = redrive.sql(f"select * from decisions where message_id = 'outbox:orders/{left}'")
    assert (decision["decision"], decision["reason"], decision["attempt"]) == ("publish", "new_row", 3)
    # what the relay had published is left alone
    assert len(redrive.read("outboxadopted.orders")) == 1


def test_rows_that_commit_late_or_are_rolled_back_are_neither_skipped_nor_awaited(redrive: Redrive, shop: Shop) -> None:
    redrive.domain("outboxlate")
    with psycopg.connect(shop.postgres.address) as late:
        insert = "insert into orders_outbox (topic, aggregate_id, payload) values ('outboxlate.orders', 'late', '{}') returning id"
        (low,) = late.execute(insert).fetchone() or ()
        with psycopg.connect(shop.postgres.address) as undone:
            undone.execute(insert)
            undone.rollback()
        high = shop.order("outboxlate.orders", "early")
        done(redrive, shop, high)
        late.commit()
    done(redrive, shop, low)
    assert len(redrive.read("outboxlate.orders")) == 2


def test_rows_with_uuids_are_deleted_when_they_are_published(redrive: Redrive, shop: Shop) -> None:
    redrive.topics("outboxevents.orders")
    ids = [shop.event("a", f"event {number}") for number in range(20)]
    redrive.until(lambda: not shop.sql("select 1 from events_outbox"), "the rows are deleted")
    records = redrive.read("outboxevents.orders")
    assert [record.value for record in records] == [f"event {number}".encode() for number in range(20)]
    assert [record.header("x-message-id") for record in records] == [str(one) for one in ids]
    assert {record.key for record in records} == {b"a"}


def test_a_row_that_kafka_refuses_is_dead_at_once_and_releases_what_follows(redrive: Redrive, shop: Shop) -> None:
    redrive.topics("outboxlarge.orders", config={"max.message.bytes": "2000"})
    redrive.topics("outboxlarge.orders.dlq")
    before = shop.order("outboxlarge.orders", "a", '{"n": 1}')
    large = shop.order("outboxlarge.orders", "a", json.dumps({"n": os.urandom(4000).hex()}))
    after = shop.order("outboxlarge.orders", "a", '{"n": 3}')
    done(redrive, shop, before, after)
    done(redrive, shop, large, status=DEAD)
    assert [json.loads(record.value or b"")["n"] for record in redrive.read("outboxlarge.orders")] == [1, 3]
    row = shop.rows()[large]
    assert row["attempts"] == 1
    assert row["last_error"]
    (dead,) = redrive.read("outboxlarge.orders.dlq")
    assert (dead.header("dlq-error-class"), dead.header("dlq-original-topic"), dead.header("dlq-attempts")) == (
        "MSG_SIZE_TOO_LARGE", "outboxlarge.orders", "1",
    )  # fmt: skip
    assert dead.header("x-message-id") == str(row["message_id"])
    (letter,) = redrive.sql(f"select * from dead_letters where message_id = 'outbox:orders/{large}'")
    assert (letter["state"], letter["reason"]) == ("open", "poison")
