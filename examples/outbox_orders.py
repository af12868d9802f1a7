"""An application with an outbox: it stores an order, and what is to be published of it, in one transaction.

    create table orders (number bigint primary key, kind text, amount text);

The table `outbox` has the columns of docs/outbox.md, profile `plain`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import psycopg

from examples.produce_orders import traceparent

TABLES = """
create table orders (id bigint generated always as identity primary key, number bigint, kind text, amount text);
create table outbox (
    id bigint generated always as identity primary key,
    topic text not null, key text, value jsonb, headers jsonb, aggregate text, created_at timestamptz not null default now(),
    status text not null default 'pending',
    attempts int not null default 0, next_retry_at timestamptz, claimed_at timestamptz, processed_at timestamptz, last_error text
);
create index on outbox (status, id);
"""

_ORDER = "insert into orders (number, kind, amount) values (%s, %s, %s)"
_ROW = "insert into outbox (topic, key, value, headers, aggregate) values (%s, %s, %s, %s, %s)"


def insert_orders(address: str, orders: Iterable[Mapping[str, Any]], topic: str = "orders") -> None:
    """Stores orders. If the transaction is rolled back, nothing is published; if it is committed, everything is."""
    with psycopg.connect(address) as connection:
        for order in orders:
            customer = f"customer-{order['order'] % 20}"
            headers = json.dumps({"content-type": "application/json", "traceparent": traceparent()})
            connection.execute(_ORDER, (order["order"], order["kind"], str(order.get("amount"))))
            connection.execute(_ROW, (topic, customer, json.dumps(order), headers, customer))
