"""Several pages of rows of an outbox are sent one after another, and what became of them is recorded and marked together."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame
from sqlalchemy import Connection

from orchestration.clock import wall_clock
from orchestration.loop import outbox_steps
from orchestration.operators import verification
from orchestration.operators.commands import CommandRequest
from orchestration.operators.dead_letters import DeadLetters
from orchestration.operators.lists import select_deliveries
from orchestration.operators.selections import Selection
from orchestration.operators.sending import send
from orchestration.outbox import read_ahead
from orchestration.outbox.database import OutboxTable
from orchestration.outbox.states import OutboxError
from orchestration.tables.ledgers import Ledgers
from tests.loop.direct_kit import known, numbers, pages_of_two, went_directly
from tests.loop.harness import Redrive
from tests.loop.outbox_kit import DEAD, Shop, done, needs_postgres

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("outbox"),
    needs_postgres,
]

OUTBOX = "pages"

BEGAN = wall_clock()


def test_a_row_that_kafka_refuses_in_a_later_page_holds_only_what_comes_after_it(
    redrive: Redrive, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "directlater.orders"
    redrive.topics(topic, config={"max.message.bytes": "2000"})
    redrive.topics(f"{topic}.dlq")
    done(redrive, shop, shop.order(topic, "first"))
    large = os.urandom(4000).hex()
    rows = {
        (one, n): shop.order(topic, one, json.dumps({"n": n, "x": large if (one, n) == ("a", 2) else ""}))
        for n in (1, 2, 3)
        for one in "ab"
    }
    with monkeypatch.context() as patch:
        pages_of_two(patch)
        done(redrive, shop, *(row for place, row in rows.items() if place != ("a", 2)))
    done(redrive, shop, rows["a", 2], status=DEAD)
    assert (numbers(redrive, topic), numbers(redrive, topic, b"b")) == ([1, 3], [1, 2, 3])
    others = [*(rows["b", n] for n in (1, 2, 3)), rows["a", 1]]
    assert went_directly(redrive, *others, rows["a", 3], outbox="pages") == [True, True, True, True, False]
    # what an operator redrives is open again, and a later row must not overtake it
    if "redrive.commands" not in redrive.loop.cluster.topic_names():
        redrive.topics("redrive.commands")
    listed = select_deliveries(DeadLetters(redrive.loop.settings), "redrive", Selection(state="open", topic=topic), None)
    append, later = Ledgers.append, list[int]()

    def append_and_order(self: Ledgers, ledger: str, rows: DataFrame, *when: Any) -> int:
        batch = append(self, ledger, rows, *when)
        if ledger == "events" and rows.where("kind = 'redrive'").count():
            later.append(shop.order(topic, "a", '{"n": 4}'))
        return batch

    with monkeypatch.context() as patch:
        patch.setattr(Ledgers, "append", append_and_order)
        send(redrive.loop.settings, CommandRequest("redrive", "once more", "ada"), listed)
        redrive.until(lambda: later, "the order is appended")
    done(redrive, shop, *later)
    redrive.settle()
    assert shop.rows()[rows["a", 2]]["status"] == DEAD
    assert went_directly(redrive, *later, outbox="pages") == [False]
    assert numbers(redrive, topic) == [1, 3, 4]
    assert len(redrive.read(f"{topic}.dlq")) == 2


@pytest.mark.parametrize(
    ("error", "recorded"),
    [
        (None, [7]),
        (OutboxError("permission denied"), [4, 3]),
        (RuntimeError("a bug"), []),
    ],
)
def test_pages_that_are_sent_one_after_another_are_recorded_together(
    redrive: Redrive, shop: Shop, monkeypatch: pytest.MonkeyPatch, error: Exception | None, recorded: list[int]
) -> None:
    """error: of reading the third page, if there is one. recorded: how many rows, by append, within one tick."""
    topic = known(redrive, shop, f"directtogether{type(error).__name__.lower()}")
    rows = [shop.order(topic, "a", f'{{"n": {n}}}') for n in range(7)]
    listed = ", ".join(f"'outbox:pages/{row}'" for row in rows)
    with monkeypatch.context() as patch:
        pages_of_two(patch, {3: error})
        redrive.loop.tick()
        batches = redrive.sql(f"select batch, count(*) as rows from publish_results where message_id in ({listed}) group by batch")
        assert [row["rows"] for row in sorted(batches)] == recorded
    done(redrive, shop, *rows)
    assert numbers(redrive, topic) == [*range(7)]
    assert all(went_directly(redrive, *rows, outbox="pages"))


@pytest.mark.parametrize("pages", [20, 1])
def test_a_page_that_can_t_be_marked_while_the_next_one_is_sent_is_not_sent_again(
    redrive: Redrive, shop: Shop, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    """pages: how many are read ahead; after them, the first pending rows are read, among which are those that are not marked."""
    topic = known(redrive, shop, f"directpages{pages}")
    write, written = OutboxTable._write_done, list[str]()

    def write_slowly(self: OutboxTable, connection: Connection, ids: Sequence[str], now: datetime) -> int:
        time.sleep(0.5)
        written.extend(ids)
        if denied in ids:
            raise OutboxError("permission denied")
        return write(self, connection, ids, now)

    expected = list[int]()
    for page in (0, 2):
        rows = [shop.order(topic, "a", f'{{"n": {len(expected) + number}}}') for number in range(7)]
        expected += range(len(expected), len(expected) + len(rows))
        denied = str(rows[2 * page])
        with monkeypatch.context() as patch:
            patch.setattr(read_ahead, "_PAGES", pages)
            # one in a step
            patch.setattr(outbox_steps, "_PAGES_FOR", 0.0)
            pages_of_two(patch)
            patch.setattr(OutboxTable, "_write_done", write_slowly)
            redrive.until(lambda: denied in written, "it is marked in vain")  # noqa: B023
            redrive.loop.tick()
        done(redrive, shop, *rows)
        assert all(went_directly(redrive, *rows, outbox="pages"))
        assert numbers(redrive, topic) == expected


def test_all_of_it_keeps_the_promises(redrive: Redrive) -> None:
    redrive.settle()
    proved = verification.verify(redrive.loop.settings, BEGAN)
    assert (proved.broken, proved.gone) == (0, ()), proved
