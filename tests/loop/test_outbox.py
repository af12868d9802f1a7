"""Rows of outbox tables are published, each once and in their order, as the relay's pages say, and what became of them is written back."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame

from orchestration.clock import wall_clock
from orchestration.demo.postgres import Postgres
from orchestration.loop.health import Part
from orchestration.operators import verification
from orchestration.outbox.database import OutboxTable
from orchestration.outbox.states import OutboxError
from orchestration.tables.ledgers import AppendError, Ledgers
from tests.loop.harness import Redrive
from tests.loop.outbox_kit import DEAD, DONE, FAILED, PENDING, PROCESSING, TABLE, UUIDS, Shop, done, needs_postgres, with_outboxes

pytestmark = [
    pytest.mark.long,
    needs_postgres,
]


BEGAN = wall_clock()


@pytest.fixture(scope="module")
def shop(postgres: Postgres) -> Shop:
    made = Shop(postgres)
    made.sql(TABLE.format(name="orders_outbox"))
    made.sql(UUIDS.format(name="events_outbox"))
    # another relay has left these
    made.order("outboxadopted.orders", "left", status=FAILED, attempts=3, next_retry_at=datetime.now(UTC))
    made.order("outboxadopted.orders", "left", status=DONE)
    return made


@pytest.fixture(scope="module", autouse=True)
def outboxes(redrive: Redrive, shop: Shop, postgres: Postgres) -> Iterator[Redrive]:
    """The loop reads outboxes, and has its timed lane: rows of outboxes go another way than retries."""
    redrive.domain("outboxadopted")
    with with_outboxes(redrive, postgres, intake_max_rows=5000) as running:
        yield running


@pytest.mark.slow
def test_without_a_status_a_row_that_is_not_published_is_taken_once(redrive: Redrive, shop: Shop) -> None:
    """It looks pending for as long as it is there: also one that is refused, as its topic can't be."""
    row = str(shop.event("7", "{}", kind="not a topic"))

    def events() -> int:
        return len(redrive.sql(f"select 1 from events where kind = 'row' and detail = '{row}'"))

    redrive.until(lambda: events() == 1, "it is taken in")
    redrive.restart()
    for _ in range(4):
        redrive.loop.tick()
    assert events() == 1
    assert shop.sql("select count(*) as n from events_outbox where id = %s", row)[0]["n"] == 1
    shop.sql("delete from events_outbox where id = %s", row)


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
    # by this header, consumers take a record for a retry
    assert (first.header("redrive-message-id"), first.header("redrive-original-topic")) == (None, None)
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


def orders_in(redrive: Redrive, topic: str) -> list[tuple[bytes | None, int]]:
    """Key and number of the records of a topic, in their order."""
    return [(record.key, json.loads(record.value or b"{}")["n"]) for record in redrive.read(topic)]


@pytest.mark.slow
def test_a_row_that_waits_holds_those_after_it_and_charges_them_nothing(redrive: Redrive, shop: Shop) -> None:
    # the topic is missing at first: every row of it fails
    ids = {(one, n): shop.order("outboxmissing.orders", one, f'{{"n": {n}}}') for n in range(3) for one in ("a", "b")}
    redrive.until(lambda: all(shop.rows()[ids[one, 0]]["attempts"] >= 2 for one in ("a", "b")), "the first of each have failed twice")
    waiting = shop.rows([*ids.values()])
    assert [waiting[ids[one, n]]["attempts"] for one in ("a", "b") for n in (1, 2)] == [0] * 4
    assert {waiting[ids[one, n]]["status"] for one in ("a", "b") for n in (1, 2)} == {PROCESSING}
    assert waiting[ids["a", 0]]["status"] == FAILED
    redrive.topics("outboxmissing.orders")
    done(redrive, shop, *ids.values())
    sent = orders_in(redrive, "outboxmissing.orders")
    assert {one: [n for key, n in sent if key == one] for one in (b"a", b"b")} == {b"a": [0, 1, 2], b"b": [0, 1, 2]}
    assert all(row["attempts"] == 0 for row in shop.rows([ids["a", 2], ids["b", 2]]).values())


@pytest.mark.slow
def test_a_row_whose_attempts_are_used_up_is_dead_and_the_next_has_its_turn(redrive: Redrive, shop: Shop) -> None:
    redrive.topics("outboxgone.orders.dlq")
    first, second = (shop.order("outboxgone.orders", "a", f'{{"n": {n}}}') for n in (1, 2))
    done(redrive, shop, first, status=DEAD)
    row = shop.rows()[first]
    assert (row["attempts"], row["next_retry_at"]) == (5, None)
    assert "UNKNOWN" in row["last_error"].upper() or row["last_error"]
    redrive.topics("outboxgone.orders")
    done(redrive, shop, second)
    assert orders_in(redrive, "outboxgone.orders") == [(b"a", 2)]
    (dead,) = redrive.read("outboxgone.orders.dlq")
    assert (dead.header("dlq-attempts"), dead.key) == ("5", b"a")
    # requeued in the table, as an operator of the relay does
    shop.sql("update orders_outbox set status = 0, attempts = 0 where id = %s", first)
    done(redrive, shop, first)
    assert orders_in(redrive, "outboxgone.orders") == [(b"a", 2), (b"a", 1)]
    lives = redrive.sql(f"select life_cycle, decision from decisions where message_id = 'outbox:orders/{first}' order by batch")
    assert (lives[0]["life_cycle"], lives[-1]["life_cycle"]) == (1, 2)


@pytest.mark.slow
def test_a_hot_aggregate_drains_at_the_rate_of_the_bulk_lane(redrive: Redrive, shop: Shop) -> None:
    redrive.topics("outboxhot.orders")
    count = 20_000
    shop.sql(
        "insert into orders_outbox (topic, aggregate_id, payload) "
        "select 'outboxhot.orders', 'hot', jsonb_build_object('n', n) from generate_series(1, %s) as n order by n",
        count,
    )
    before = redrive.loop.state.tick
    redrive.until(lambda: not shop.sql("select 1 from orders_outbox where aggregate_id = 'hot' and status <> 2 limit 1"), "all are done")
    assert [n for _, n in orders_in(redrive, "outboxhot.orders")] == [*range(1, count + 1)]
    # intake takes 5,000 in a tick here; a row a tick would be 20,000 ticks
    assert redrive.loop.state.tick - before <= 12


def test_what_is_not_written_back_is_published_once_over_a_restart(redrive: Redrive, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive.domain("outboxunmarked")
    write = OutboxTable.write

    def deny(*_: object) -> int:
        raise OutboxError("permission denied")

    monkeypatch.setattr(OutboxTable, "write", deny)
    one = shop.order("outboxunmarked.orders")
    redrive.until(lambda: redrive.read("outboxunmarked.orders"), "the row is published")
    assert shop.rows()[one]["status"] == PENDING
    assert Part("outbox", "orders") in redrive.loop.health
    redrive.restart()
    monkeypatch.setattr(OutboxTable, "write", write)
    two = shop.order("outboxunmarked.orders")
    done(redrive, shop, one, two)
    assert len(redrive.read("outboxunmarked.orders")) == 2


@pytest.mark.slow
def test_without_a_status_what_is_published_and_not_deleted_yet_is_published_once_over_a_restart(
    redrive: Redrive, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # its topic is missing at first, so that it was taken in long before it is published
    row = shop.event("7", "{}", kind="late")
    topic = "outboxevents.late"
    redrive.until(lambda: redrive.sql(f"select 1 from publish_results where outcome = 'failed' and topic = '{topic}'"), "it waits")
    redrive.loop.tick()

    def deny(*_: object) -> int:
        raise OutboxError("permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(OutboxTable, "write", deny)
        redrive.topics(topic)
        redrive.until(lambda: redrive.read(topic), "it is published")
        redrive.restart()
        for _ in range(3):
            redrive.loop.tick()
    redrive.until(lambda: not shop.sql("select 1 from events_outbox where id = %s", row), "it is deleted")
    for _ in range(3):
        redrive.loop.tick()
    assert len(redrive.read(topic)) == 1


@pytest.mark.slow
def test_rows_of_another_relay_are_adopted_once_page_by_page_also_if_an_append_has_no_answer(
    redrive: Redrive, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    redrive.domain("outboxpages")
    later = wall_clock() + timedelta(hours=3)
    rows = [str(shop.order("outboxpages.orders", f"{n}", status=FAILED, attempts=1, next_retry_at=later)) for n in range(5)]
    redrive.settle()
    state = redrive.loop.state
    redrive.loop.state = replace(state, outboxes={**state.outboxes, "orders": replace(state.outboxes["orders"], adopts=True)})
    read, append, unanswered = OutboxTable.read, Ledgers.append, list[int]()

    def no_answer(self: Ledgers, ledger: str, rows: DataFrame, *when: Any) -> int:
        batch = append(self, ledger, rows, *when)
        if ledger == "events" and not unanswered:
            unanswered.append(batch)
            raise AppendError("no answer")
        return batch

    def adopted() -> dict[str, int]:
        found = redrive.sql("select detail, count(*) as events from events where kind = 'row' and source = 'orders' group by detail")
        return {row["detail"]: row["events"] for row in found if row["detail"] in rows}

    monkeypatch.setattr(OutboxTable, "read", lambda self, limit, *given, **named: read(self, min(limit, 2), *given, **named))
    monkeypatch.setattr(Ledgers, "append", no_answer)
    redrive.until(lambda: len(adopted()) == len(rows), "all are adopted")
    redrive.until(lambda: not redrive.loop.state.outboxes["orders"].adopts, "nothing is left to adopt")
    assert unanswered
    assert adopted() == dict.fromkeys(rows, 1)


@pytest.mark.slow
def test_a_database_that_is_frozen_stops_nothing_else(redrive: Redrive, shop: Shop) -> None:
    redrive.domain("outboxfrozen")
    shop.postgres.signal(signal.SIGSTOP)
    try:
        redrive.fails("outboxfrozen.orders", b"k", b"v")
        redrive.retries("outboxfrozen", 1)
        assert Part("outbox", "orders") in redrive.loop.health
        assert Part("kafka") not in redrive.loop.health
    finally:
        shop.postgres.signal(signal.SIGCONT)
    one = shop.order("outboxfrozen.orders")
    done(redrive, shop, one)
    redrive.until(lambda: Part("outbox", "orders") not in redrive.loop.health, "the outbox works again")


@pytest.mark.slow
def test_a_database_that_was_away_is_read_when_it_is_back(redrive: Redrive, shop: Shop) -> None:
    redrive.domain("outboxaway")
    one = shop.order("outboxaway.orders")
    shop.postgres.stop()
    redrive.fails("outboxaway.orders", b"k", b"v")
    redrive.retries("outboxaway", 1)
    shop.postgres.start()
    shop.connection = Shop(shop.postgres).connection
    done(redrive, shop, one)


@pytest.mark.slow
def test_a_row_that_its_owner_deletes_is_published_and_the_rest_goes_on(
    redrive: Redrive, shop: Shop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    redrive.domain("outboxdeleted")
    write = OutboxTable.write

    def delete_first(self: OutboxTable, *how: Any) -> int:
        shop.sql("delete from orders_outbox where topic = 'outboxdeleted.orders' and aggregate_id = 'gone'")
        return write(self, *how)

    monkeypatch.setattr(OutboxTable, "write", delete_first)
    shop.order("outboxdeleted.orders", "gone")
    other = shop.order("outboxdeleted.orders", "kept")
    done(redrive, shop, other)
    assert len(redrive.read("outboxdeleted.orders")) == 2
    assert "outbox_rows_gone outbox=orders rows=1" in caplog.text


def test_all_of_it_keeps_the_promises(redrive: Redrive) -> None:
    redrive.settle()
    proved = verification.verify(redrive.loop.settings, BEGAN)
    (recorded,) = redrive.sql("select count(*) as delivered from publish_results where outcome = 'delivered'")
    assert (proved.broken, proved.results, proved.gone) == (0, recorded["delivered"], ()), proved
    assert proved.results >= 10
