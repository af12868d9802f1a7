"""Rows of outboxes that are sent directly, and pages of a few rows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import pytest

from orchestration.outbox.database import OutboxTable
from orchestration.outbox.states import Page
from tests.loop.harness import Redrive
from tests.loop.outbox_kit import Shop, done


def known(redrive: Redrive, shop: Shop, domain: str) -> str:
    """A topic that a row was published to."""
    redrive.domain(domain)
    topic = f"{domain}.orders"
    done(redrive, shop, shop.order(topic, "first", '{"n": 0}'))
    return topic


def numbers(redrive: Redrive, topic: str, key: bytes = b"a") -> list[int]:
    """The numbers of a key's records in a topic, in their order."""
    return [json.loads(record.value or b"{}")["n"] for record in redrive.read(topic) if record.key == key]


def went_directly(redrive: Redrive, *ids: int, outbox: str = "direct") -> list[bool]:
    """Of rows that were published, which left nothing but a result."""
    names = [f"outbox:{outbox}/{one}" for one in ids]
    listed = ", ".join(f"'{name}'" for name in names)
    found = redrive.sql(f"select message_id, delivery_id from publish_results where outcome = 'delivered' and message_id in ({listed})")
    decided = {row["message_id"] for row in redrive.sql(f"select message_id from deliveries where message_id in ({listed})")}
    results = {row["message_id"]: row["delivery_id"] for row in found}
    assert results.keys() == {*names}, "some were not published"
    assert len(found) == len(names), "some were published twice"
    return ["#direct." in results[name] and name not in decided for name in names]


def pages_of_two(patch: pytest.MonkeyPatch, errors: Mapping[int, Exception | None] | None = None) -> None:
    """Has pages read that have two rows at most. errors: of the nth read."""
    read, reads = OutboxTable.read, itertools.count(1)

    def read_two(self: OutboxTable, limit: int, *given: Any, **named: Any) -> Page:
        if (error := (errors or {}).get(next(reads))) is not None:
            raise error
        return read(self, min(limit, 2), *given, **named)

    patch.setattr(OutboxTable, "read", read_two)
