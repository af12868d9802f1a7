"""Rows that were sent directly by a loop that was killed, to a topic that can't be read back at first: each arrives once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from orchestration.tables.ledgers import Ledgers
from tests.loop.death import Died, start_after_death, until_it_dies
from tests.loop.direct_kit import known, numbers
from tests.loop.harness import Redrive
from tests.loop.outbox_kit import Shop, done, needs_postgres

OUTBOX = "directunread"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("outbox"),
    needs_postgres,
]


def test_rows_wait_until_their_topic_can_be_read_and_are_not_sent_again(
    redrive: Redrive, shop: Shop, kafka: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = known(redrive, shop, "directhidden")
    append = Ledgers.append

    def die(self: Ledgers, ledger: str, rows: DataFrame | pa.Table, *when: Any) -> int:
        if isinstance(rows, pa.Table) and any("#direct." in (row.get("delivery_id") or "") for row in rows.to_pylist()):
            raise Died
        return append(self, ledger, rows, *when)

    rows = [shop.order(topic, "a", f'{{"n": {n}}}') for n in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(Ledgers, "append", die)
        until_it_dies(redrive)
    other = Producer({**kafka, "transactional.id": f"{topic}-other", "transaction.timeout.ms": 600_000})
    other.init_transactions(10)
    other.begin_transaction()
    for number in range(len(other.list_topics(topic, 10).topics[topic].partitions)):
        other.produce(topic, b"of somebody else", partition=number)
    assert other.flush(10) == 0
    start_after_death(redrive)
    assert topic in redrive.loop.state.window.paused
    # what was found is recorded and written back, but no further row is read
    more = shop.order(topic, "a", '{"n": 3}')
    for _ in range(3):
        redrive.loop.tick()
    assert not redrive.loop.steps.publish.knows_what_was_sent
    assert shop.rows([more])[more]["status"] == 0
    other.abort_transaction(10)
    done(redrive, shop, *rows, more)
    redrive.settle()
    assert numbers(redrive, topic) == [0, 1, 2, 3]
    found = redrive.sql(f"select message_id, found_by from publish_results where found_by = 'read_back' and topic = '{topic}'")
    assert {row["message_id"] for row in found} == {f"outbox:{OUTBOX}/{one}" for one in rows}
