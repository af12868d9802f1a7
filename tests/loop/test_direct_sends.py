"""Rows of outboxes that need no decision are sent as they are read: each once, and in order, also if it isn't known what was sent."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from orchestration.clock import wall_clock
from orchestration.loop import decide
from orchestration.loop.health import FIRST_PAUSE, Part
from orchestration.operators import verification
from orchestration.outbox.database import OutboxTable
from orchestration.outbox.states import OutboxError
from orchestration.rules.explain import in_words
from orchestration.tables.ledgers import AppendError, Ledgers
from publisher import RESULTS
from tests.loop.direct_kit import known, numbers, pages_of_two, went_directly
from tests.loop.harness import Redrive
from tests.loop.outbox_kit import DEAD, DONE, PROCESSING, Shop, done, needs_postgres

pytestmark = [
    pytest.mark.long,
    pytest.mark.usefixtures("outbox"),
    needs_postgres,
]

OUTBOX = "direct"

BEGAN = wall_clock()


def test_a_row_for_a_topic_that_is_known_is_sent_as_it_is_read_with_the_same_bytes(redrive: Redrive, shop: Shop) -> None:
    topic = known(redrive, shop, "directfirst")
    columns = {"headers": '{"tenant": "acme"}', "trace_id": "t-1"}
    rows = [shop.order(topic, "7", '{"b": 1.10, "a": "x y"}', **columns), shop.order(topic, "8")]
    redrive.loop.tick()
    assert [row["status"] for row in shop.rows(rows).values()] == [DONE, DONE]
    assert went_directly(redrive, *rows) == [True, True]
    _, first, second = redrive.read(topic)
    assert (first.key, first.value, second.key) == (b"7", b'{"a":"x y","b":1.10}', b"8")
    row = shop.rows()[rows[0]]
    assert dict(first.own_headers) == {
        "tenant": b"acme",
        "content-type": b"application/json",
        "message-id": str(row["message_id"]).encode(),
        "x-message-id": str(row["message_id"]).encode(),
        "aggregate-type": b"Order",
        "aggregate-id": b"7",
        "trace-id": b"t-1",
    }
    assert (first.header("redrive-message-id"), first.header("redrive-original-topic")) == (None, None)
    assert (row["attempts"], row["next_retry_at"], row["last_error"]) == (0, None, None)
    history = redrive.sql(f"select * from message_history where message_id = 'outbox:direct/{rows[0]}'")
    ((_, told),) = in_words([row.asDict() for row in history])
    assert told.startswith(f"sent to {topic}/{first.partition}/{first.offset}, ")
    # also after a restart, as the tables know the topic
    redrive.restart()
    after = shop.order(topic, "7")
    done(redrive, shop, after)
    assert went_directly(redrive, after) == [True]
    # its owner publishes it once more
    shop.sql("update orders_outbox set status = 0 where id = %s", after)
    done(redrive, shop, after)
    assert len(redrive.read(topic)) == 5


@pytest.mark.slow
def test_a_row_that_kafka_refuses_goes_through_the_tables_and_the_others_don_t(redrive: Redrive, shop: Shop) -> None:
    topic = "directlarge.orders"
    redrive.topics(topic, config={"max.message.bytes": "2000"})
    redrive.topics(f"{topic}.dlq")
    done(redrive, shop, shop.order(topic, "first"))
    one, large, three = (shop.order(topic, "a", json.dumps({"n": n, "x": x})) for n, x in ((1, ""), (2, os.urandom(4000).hex()), (3, "")))
    other = shop.order(topic, "b")
    done(redrive, shop, one, three, other)
    done(redrive, shop, large, status=DEAD)
    assert numbers(redrive, topic) == [1, 3]
    # its refusal counts nothing yet, and what is in order with it must not overtake it
    assert went_directly(redrive, one, three, other) == [False, False, True]
    row = shop.rows()[large]
    assert row["attempts"] == 1
    assert row["last_error"]
    (dead,) = redrive.read(f"{topic}.dlq")
    assert dead.header("x-message-id") == str(row["message_id"])


def test_rows_stay_behind_one_of_their_sequence_that_waits_in_the_tables(redrive: Redrive, shop: Shop) -> None:
    topic = known(redrive, shop, "directorder")
    # its owner wants it later
    first = shop.order(topic, "a", '{"n": 1}', next_retry_at=wall_clock(), attempts=1)
    later = shop.order(topic, "a", '{"n": 2}')
    other = shop.order(topic, "b", '{"n": 1}')
    done(redrive, shop, first, later, other)
    assert went_directly(redrive, first, later, other) == [False, False, True]
    assert numbers(redrive, topic) == [1, 2]

    def another_goes_directly() -> bool:
        redrive.settle()
        sent = len(numbers(redrive, topic))
        last = shop.order(topic, "a", f'{{"n": {sent + 1}}}')
        done(redrive, shop, last)
        return went_directly(redrive, last) == [True]

    # the tables are asked from time to time whether anything of the sequence is still open
    redrive.until(another_goes_directly, "rows of the sequence are sent directly again")
    sent = numbers(redrive, topic)
    assert sent == [*range(1, len(sent) + 1)]


@pytest.mark.parametrize("restarts", [pytest.param(False, marks=pytest.mark.slow), True])
def test_results_that_cannot_be_appended_are_read_back(
    redrive: Redrive, shop: Shop, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    topic = known(redrive, shop, f"directunrecorded{restarts:d}")
    append, refused = Ledgers.append, list[int]()

    def refuse(self: Ledgers, ledger: str, rows: DataFrame | pa.Table, *when: Any) -> int:
        if isinstance(rows, pa.Table) and any("#direct." in (row.get("delivery_id") or "") for row in rows.to_pylist()):
            refused.append(1)
            raise AppendError("the catalog is locked")
        return append(self, ledger, rows, *when)

    rows = [shop.order(topic, "a", f'{{"n": {n}}}') for n in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(Ledgers, "append", refuse)
        redrive.until(lambda: refused, "results are refused")
        more = shop.order(topic, "a", '{"n": 3}')
        for _ in range(3):
            redrive.loop.tick()
        # nothing of this outbox is read while what was sent isn't known
        assert {row["status"] for row in shop.rows([*rows, more]).values()} == {0}
        if restarts:
            patch.undo()
            redrive.restart()
    done(redrive, shop, *rows, more)
    assert numbers(redrive, topic) == [0, 1, 2, 3]
    found = redrive.sql("select message_id, found_by from publish_results where found_by = 'read_back' and topic = '" + topic + "'")
    assert {row["message_id"] for row in found} == {f"outbox:direct/{one}" for one in rows}


@pytest.mark.slow
@pytest.mark.parametrize("page", [1, 2])
def test_a_commit_without_an_answer_is_read_back(redrive: Redrive, shop: Shop, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    topic = known(redrive, shop, f"directunknown{page}")
    slot = redrive.loop.steps.take_rows.direct._slot
    publish, published = slot.publish, list[int]()

    def unanswered(ready: pa.RecordBatch) -> list[pa.RecordBatch]:
        published.append(ready.num_rows)
        if len(published) < page:
            return publish(ready)
        lost = [{**row, "outcome": "unknown", "partition": None, "offset": None} for some in publish(ready) for row in some.to_pylist()]
        return [pa.RecordBatch.from_pylist(lost, schema=RESULTS)]

    rows = [shop.order(topic, "a", f'{{"n": {n}}}') for n in range(5)]
    with monkeypatch.context() as patch:
        patch.setattr(slot, "publish", unanswered)
        pages_of_two(patch)
        redrive.loop.tick()
        assert [row["status"] for row in shop.rows(rows).values()] == [DONE] * (2 * page - 2) + [0] * (7 - 2 * page)
    done(redrive, shop, *rows)
    assert numbers(redrive, topic) == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_what_is_not_written_back_is_not_sent_again(redrive: Redrive, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = known(redrive, shop, "directunmarked")

    def deny(*_: object) -> int:
        raise OutboxError("permission denied")

    for restarts in (False, True):
        one = shop.order(topic, "a", f'{{"n": {restarts:d}}}')
        with monkeypatch.context() as patch:
            patch.setattr(OutboxTable, "write", deny)
            patch.setattr(OutboxTable, "mark", deny)
            redrive.until(lambda: len(numbers(redrive, topic)) > restarts, "the row is sent")  # noqa: B023
            for _ in range(2):
                redrive.loop.tick()
            if restarts:
                redrive.restart()
                redrive.loop.tick()
        done(redrive, shop, one)
        assert went_directly(redrive, one) == [True]
    assert numbers(redrive, topic) == [0, 1]


def test_rows_that_the_database_keeps_as_they_are_are_published_once_and_their_outbox_says_so(redrive: Redrive, shop: Shop) -> None:
    topic = known(redrive, shop, "directkept")
    shop.sql("create function keep() returns trigger language plpgsql as 'begin return null; end'")
    shop.sql("create trigger keep before update on orders_outbox for each row execute function keep()")
    rows = [shop.order(topic, "7") for _ in range(2)]
    part = Part("outbox", OUTBOX)
    redrive.until(lambda: part in redrive.loop.health, "it says that they can't be marked")
    assert "2 rows of orders_outbox were published and can't be updated or deleted" in redrive.loop.health[part].why
    redrive.until(lambda: redrive.loop.health[part].pause > FIRST_PAUSE, "they can't be marked when it is tried again, either")
    later = shop.order(topic, "8")
    redrive.loop.tick()
    assert len(redrive.read(topic)) == 3, "no more of its rows are read"
    shop.sql("drop trigger keep on orders_outbox")
    done(redrive, shop, *rows, later)
    redrive.until(lambda: part not in redrive.loop.health, "the outbox works again")
    assert len(redrive.read(topic)) == 4


@pytest.mark.slow
def test_a_row_that_is_open_in_the_tables_and_pending_again_is_not_sent_beside_its_retry(redrive: Redrive, shop: Shop) -> None:
    topic = known(redrive, shop, "directpending")
    shop.sql("alter table orders_outbox alter column aggregate_id drop not null")
    row = shop.order(topic, "a", '{"n": 1}', key="a", attempts=1, next_retry_at=wall_clock() + timedelta(hours=3))
    shop.sql("update orders_outbox set aggregate_id = null where id = %s", row)
    done(redrive, shop, row, status=PROCESSING)
    shop.sql("update orders_outbox set status = 0, attempts = 0, next_retry_at = null where id = %s", row)
    message = f"message_id = 'outbox:direct/{row}'"
    redrive.until(lambda: redrive.sql(f"select 1 from decisions where {message} and decision = 'duplicate'"), "it is decided about again")
    assert numbers(redrive, topic) == []
    assert redrive.sql(f"select 1 from publish_results where {message}") == []


@pytest.mark.slow
def test_the_watermark_goes_on_while_nothing_is_to_be_decided(redrive: Redrive, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintenance leaves alone what comes after it."""
    monkeypatch.setattr(decide, "_MOST_BEHIND", 5)
    topic = known(redrive, shop, "directmaintained")
    began = redrive.loop.state.watermark
    for number in range(5):
        row = shop.order(topic, "a", f'{{"n": {number}}}')
        done(redrive, shop, row)
        assert went_directly(redrive, row) == [True]
    assert redrive.loop.state.watermark > began
    assert numbers(redrive, topic) == [*range(5)]


@pytest.mark.slow
def test_another_installation_s_rows_are_not_taken_for_ours(redrive: Redrive, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = known(redrive, shop, "directforeign")
    row = shop.order(topic, "a", '{"n": 1}', status=2)
    redrive.write(
        topic, b"a", b'{"n": 7}', [("redrive-delivery", f"outbox:direct/{row}#direct.00000000.1f".encode()), ("redrive-due", b"1")]
    )
    read_back = redrive.loop.steps.publish.read_back
    read_back.after(BEGAN)
    redrive.until(lambda: read_back.since is None, "it is read back")
    assert redrive.sql(f"select 1 from publish_results where message_id = 'outbox:direct/{row}'") == []


@pytest.mark.slow
def test_all_of_it_keeps_the_promises(redrive: Redrive) -> None:
    redrive.settle()
    proved = verification.verify(redrive.loop.settings, BEGAN)
    assert (proved.broken, proved.gone) == (0, ()), proved
