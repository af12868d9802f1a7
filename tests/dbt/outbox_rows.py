"""Rows of outboxes in `events`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from orchestration.loop import event_rows
from orchestration.outbox.taken_rows import TAKEN
from tests.dbt.harness import Home


def append_rows(home: Home, *rows: Mapping[str, Any], outbox: str = "orders") -> list[str]:
    """Appends rows of an outbox to `events`, in one batch; what isn't given is null. Returns their input ids."""
    taken = pa.Table.from_pylist([{"created_at": home.now, "value": b"value", **row} for row in rows], schema=TAKEN)
    batch = home.append("events", event_rows.of_outbox(home.spark, outbox, taken, home.batch + 1))
    return [f"outbox:{outbox}/0/{batch}/{place}" for place in range(len(rows))]
