"""Drains an outbox table, against a plain relay that claims rows with SKIP LOCKED: same table, same batches, same transactions.

The relay claims a batch, produces it in one transaction, marks its rows as done, and commits both, first in Kafka: a crash in between
repeats the batch. It keeps no order of its own, and knows no retries, dead letters or reasons. redrive does all that it always does. They
alternate, each with a table that was filled anew; the medians are compared.

Then 1,000 rows are written while others, which another relay has left as failed, wait for their next attempt in redrive's tables.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from bench.wheel import settle
from orchestration.demo.postgres import Postgres
from orchestration.kafka.cluster import Cluster
from orchestration.loop.loop import Loop
from orchestration.settings import load_settings
from publisher import make_client

_BATCH = 50_000

# A loop that has just started compiles what it runs, on the processors that do the work.
_WARM_UPS = 20
_AGGREGATES = 1_000

_TABLE = """
create table outbox (
    id bigint generated always as identity primary key, message_id uuid not null default gen_random_uuid(), aggregate_type text not null,
    aggregate_id text not null, topic text not null, key text, payload jsonb not null, headers jsonb not null default '{}'::jsonb,
    trace_id text, status smallint not null default 0, attempts int not null default 0, next_retry_at timestamptz, claimed_at timestamptz,
    created_at timestamptz not null default now(), processed_at timestamptz
);
create index on outbox (status, id) where status in (0, 1, 3);
"""

_FILL = """
insert into outbox (aggregate_type, aggregate_id, topic, payload)
select 'Order', n %% %(aggregates)s, %(topic)s, jsonb_build_object('n', n, 'note', repeat('x', 300)) from generate_series(1, %(rows)s) as n
"""

_LEAVE = """
insert into outbox (aggregate_type, aggregate_id, topic, payload, status, attempts, next_retry_at)
select 'Order', 'left' || n, 'orders', jsonb_build_object('n', n, 'note', repeat('x', 300)), 3, 1, now() + interval '3 hours'
from generate_series(1, %(rows)s) as n
"""

_CLAIM = """
select id, message_id, aggregate_id, topic, payload::text from outbox where status = 0 order by id limit %s for update skip locked
"""


def bench_outbox(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per case: who drains the table, rows, seconds (the median), rows_s, and for redrive the ratio to the relay."""
    rows, runs = (50_000, 1) if quick else (1_000_000, 3)
    topics = ("redrive.failures", "redrive.failures.dlq", "orders", "orders.dlq", "relayed")
    Cluster(kafka).create(NewTopic(name, 6, 1) for name in topics)
    with Postgres() as postgres, psycopg.connect(postgres.address, autocommit=True) as shop:
        shop.execute(_TABLE)
        (home / "seeds").mkdir()
        for seed in load_settings().seeds.glob("*.csv"):
            (home / "seeds" / seed.name).write_text(seed.read_text(encoding="utf-8"), encoding="utf-8")
        (home / "seeds" / "outboxes.csv").write_text("outbox,connection,table,profile\nshop,shop,outbox,eventferry\n")
        loop = Loop(
            load_settings(
                home=home / "state", seeds=home / "seeds", kafka={**kafka, "log_level": "0"}, connections={"shop": postgres.address},
                intake_max_rows=_BATCH,
            )
        )  # fmt: skip
        loop.start()
        took: dict[str, list[float]] = {"redrive": [], "relay": []}
        drains: dict[str, tuple[str, Callable[[], None]]] = {
            "relay": ("relayed", lambda: _relay(postgres.address, kafka)),
            "redrive": ("orders", lambda: _ticks(loop, shop)),
        }
        for run in range(-_WARM_UPS, runs):
            for name, (topic, drain) in drains.items():
                shop.execute("truncate outbox")
                shop.execute(_FILL, {"aggregates": _AGGREGATES, "topic": topic, "rows": 5_000 if run < 0 else rows})
                shop.execute("analyze outbox")
                began = time.perf_counter()
                drain()
                if run >= 0:
                    took[name].append(time.perf_counter() - began)
                    print(f"{name}: {rows:,} rows in {took[name][-1]:.1f} s", file=sys.stderr)
                left = shop.execute("select count(*) from outbox where status <> 2").fetchone()
                assert left == (0,), left
        waiting = [_beside_waiting(loop, shop, pending, runs) for pending in ((1_000,) if quick else (10_000, 1_000_000))]
        settle(loop)
        loop.close()
    median = {name: statistics.median(seconds) for name, seconds in took.items()}
    return [
        {
            "case": name,
            "rows": rows,
            "seconds": median[name],
            "rows_s": round(rows / median[name]),
            "of the relay": median["relay"] / median[name],
        }
        for name in ("relay", "redrive")
    ] + waiting


def _ticks(loop: Loop, shop: psycopg.Connection[Any]) -> None:
    """Ticks until every row is done."""
    while True:
        loop.tick()
        if shop.execute("select 1 from outbox where status <> 2 limit 1").fetchone() is None:
            return


def _beside_waiting(loop: Loop, shop: psycopg.Connection[Any], pending: int, runs: int) -> dict[str, Any]:
    """1,000 rows are drained while so many others wait for their next attempt."""
    shop.execute("truncate outbox")
    shop.execute(_LEAVE, {"rows": pending})
    shop.execute("analyze outbox")
    # as a loop that takes over from a relay
    position = loop.state.outboxes["shop"]
    loop.state = replace(loop.state, outboxes={"shop": replace(position, adopts=True)})
    while shop.execute("select 1 from outbox where status = 3 and claimed_at is null and attempts = 1 limit 1").fetchone() is not None:
        if not loop.tick().did_something:
            break
    settle(loop)
    took = []
    for _ in range(runs + 1):
        shop.execute(_FILL, {"aggregates": _AGGREGATES, "topic": "orders", "rows": 1_000})
        seconds = 0.0
        # not part of the time: it reads all that waits
        while shop.execute("select 1 from outbox where attempts = 0 and status in (0, 1) limit 1").fetchone() is not None:
            began = time.perf_counter()
            loop.tick()
            seconds += time.perf_counter() - began
        took.append(seconds)
        shop.execute("delete from outbox where status = 2")
    print(f"{pending:,} wait: 1,000 rows in {statistics.median(took[1:]):.1f} s", file=sys.stderr)
    seconds = statistics.median(took[1:])
    return {"case": f"{pending:,} wait", "rows": 1_000, "seconds": seconds, "rows_s": round(1_000 / seconds), "of the relay": 0.0}


def _relay(address: str, kafka: dict[str, str]) -> None:
    """The plain relay."""
    own = {"transactional.id": "bench.relay", "partitioner": "murmur2_random", "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
    producer = make_client(Producer, {**kafka, **own}, kafka)
    producer.init_transactions(30)
    with psycopg.connect(address) as connection:
        while rows := connection.execute(_CLAIM, (_BATCH,)).fetchall():
            producer.begin_transaction()
            for place, (_, message_id, aggregate, topic, payload) in enumerate(rows):
                value = json.dumps(json.loads(payload), separators=(",", ":")).encode()
                headers = [("message-id", str(message_id).encode()), ("aggregate-id", aggregate.encode())]
                producer.produce(topic, value, aggregate.encode(), headers=headers)
                if place % 1_000 == 0:
                    producer.poll(0)
            producer.flush()
            producer.commit_transaction(30)
            connection.execute("update outbox set status = 2, processed_at = now() where id = any(%s)", ([row[0] for row in rows],))
            connection.commit()
