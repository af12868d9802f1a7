"""Followers: messages that their consumer did not try, as an earlier one of their sequence had failed.

Each waits in the tables until the messages before it have recovered, or one of them is dead. The view `sequence_members` shows which order
is next for each; the loop only writes these orders, in the order of the sequence, as events that the next decide run decides about.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from typing import Final

from pyspark.sql import Row, SparkSession

from orchestration.loop.open_sequences import OpenSequences
from orchestration.tables import synthetic_events
from orchestration.tables.ledgers import Ledgers

KINDS: Final = ("in_turn", "follows_a_dead_message")
"""The kinds of orders about followers: tests/unit/test_decision_reasons.py compares them with the table of reasons."""


@dataclass
class Followers:
    """Orders what becomes of followers. most: how many orders one look writes at most."""

    spark: SparkSession
    schema: str
    ledgers: Ledgers
    sequences: OpenSequences
    most: int
    _ordered: int | None = None
    """The batch of the last orders: no further ones are written until they are decided."""

    def look(self, now: datetime, watermark: int) -> int:
        """Writes the orders that are next; returns how many. watermark: the last batch that is decided. Raises AppendError."""
        self.sequences.look(watermark, now)
        if self._ordered is None:
            self._ordered = self._undecided(watermark) if self.sequences.is_known else None
        orders = self.sequences.orders
        if not orders or self._ordered is None or self._ordered > watermark:
            return 0
        chosen = list(islice(chain.from_iterable(orders.values()), self.most))
        batch = self.ledgers.next_batch
        events = [
            synthetic_events.follower_order(batch, place, one["next_order"], one["delivery_id"], one["due_at"], one["epoch"])
            for place, one in enumerate(chosen)
        ]
        self._ordered = self.ledgers.append("events", synthetic_events.as_rows(self.spark, events), now)
        self._forget(chosen)
        return len(chosen)

    def _forget(self, ordered: list[Row]) -> None:
        """What is ordered is not ordered again: once it is decided, its sequence shows what is next."""
        left = {one["delivery_id"] for one in ordered}
        for key in {one["sequence_key"] for one in ordered}:
            rest = [one for one in self.sequences.orders.pop(key) if one["delivery_id"] not in left]
            if rest:
                self.sequences.orders[key] = rest

    def _undecided(self, watermark: int) -> int:
        """The batch of the last orders that an earlier loop has written and that are not decided; the watermark if there are none."""
        kinds = ", ".join(f"'{kind}'" for kind in KINDS)
        (found,) = self.spark.sql(
            f"select max(batch) as batch from {self.schema}.events where batch > {watermark:d} and kind in ({kinds})"
        ).collect()
        return watermark if found["batch"] is None else int(found["batch"])
