"""A loop that reads outbox tables of a real PostgreSQL, and the application that writes them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from orchestration.demo.postgres import Postgres, programs
from tests.loop.harness import Redrive

# The table of the relay whose pages the behaviour is taken from: docs/outbox.md
TABLE = """
create table {name} (
    id bigint generated always as identity primary key,
    message_id uuid not null default gen_random_uuid(),
    aggregate_type varchar(255) not null default 'Order',
    aggregate_id varchar(255) not null,
    topic varchar(255) not null,
    key text,
    payload jsonb not null,
    headers jsonb not null default '{{}}'::jsonb,
    trace_id varchar(64),
    status smallint not null default 0,
    attempts int not null default 0,
    next_retry_at timestamptz,
    claimed_at timestamptz,
    created_at timestamptz not null default now(),
    processed_at timestamptz,
    last_error text
);
create index on {name} (status, id);
"""

UUIDS = """
create table {name} (
    id uuid primary key, aggregatetype text, aggregateid text, type text, payload text, created_at timestamptz default now()
)
"""

needs_postgres = pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed (Debian: apt-get install postgresql)")

PENDING, PROCESSING, DONE, FAILED, DEAD = range(5)

OUTBOXES = """outbox,connection,table,profile,columns,topic,write_back
orders,shop,orders_outbox,eventferry,last_error=last_error,,
events,shop,events_outbox,debezium,created_at=created_at,outboxevents.{aggregatetype},delete
"""


class Shop:
    """The application's database."""

    def __init__(self, postgres: Postgres) -> None:
        self.postgres = postgres
        self.connection = psycopg.connect(postgres.address, autocommit=True, row_factory=dict_row)

    def sql(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """Runs a statement; returns its rows, if it has any."""
        cursor = self.connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []

    def order(self, topic: str, aggregate: str = "a", payload: str = '{"n": 1}', table: str = "orders_outbox", **columns: Any) -> int:
        """Inserts a row; returns its id."""
        names = ["topic", "aggregate_id", "payload", *columns]
        marks = ", ".join(["%s"] * len(names))
        (row,) = self.sql(
            f"insert into {table} ({', '.join(names)}) values ({marks}) returning id", topic, aggregate, payload, *columns.values()
        )
        return int(row["id"])

    def rows(self, ids: Iterable[int] | None = None) -> dict[int, dict[str, Any]]:
        """The rows of the outbox by id, or some."""
        found = {row["id"]: row for row in self.sql("select * from orders_outbox order by id")}
        return found if ids is None else {one: found[one] for one in ids}

    def event(self, aggregate: str, payload: str, kind: str = "orders") -> uuid.UUID:
        """Inserts a row into the table with UUIDs."""
        made = uuid.uuid4()
        self.sql(
            "insert into events_outbox (id, aggregatetype, aggregateid, payload) values (%s, %s, %s, %s)", made, kind, aggregate, payload
        )
        return made


@contextmanager
def with_outboxes(redrive: Redrive, postgres: Postgres, outboxes: str = OUTBOXES, **settings: Any) -> Iterator[Redrive]:
    """The loop of the tests, with its timed lane, and with outboxes; afterwards without, as it was.

    outboxes: the seed; two modules must not use one name, as the loop's tables know its rows.
    """
    seed = redrive.loop.settings.seeds / "outboxes.csv"
    before, was = seed.read_text(encoding="utf-8"), redrive.loop.settings
    seed.write_text(outboxes, encoding="utf-8")
    redrive.restart(connections={"shop": postgres.address}, look_ahead_seconds=30.0, **settings)
    yield redrive
    redrive.settle()
    seed.write_text(before, encoding="utf-8")
    redrive.restart(**{name: getattr(was, name) for name in ("connections", "look_ahead_seconds", *settings)})


def done(redrive: Redrive, shop: Shop, *ids: int, status: int = DONE) -> None:
    """Runs ticks until rows have a status."""
    redrive.until(lambda: all(row["status"] == status for row in shop.rows(ids).values()), f"the rows {ids} are {status}")
