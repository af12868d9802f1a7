"""The sequences that are held, and what is to be ordered about their followers, as the loop knows them.

The views `sequence_members` and `sequences` say both, from all decisions that were ever made about messages of sequences. The loop runs
their queries for those sequences only in which something has happened: it keeps the decisions about the ones that are held, adds those of
each decide run, and fills them in. So a look costs as much as what has happened since the last one, whatever the tables hold.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from orchestration.clock import literal
from orchestration.loop.consumer_progress import Place
from orchestration.tables.decide_statements import filled
from orchestration.tables.interpreted import FEW_ROWS, interpreted_if_few
from orchestration.tables.rows import collected, free
from orchestration.tables.spark import view_text

_READ: Final = (
    *("message_id", "input_id", "delivery_id", "due_at", "batch", "recorded_at", "decision", "kind", "error_kind", "outbox_row"),
    *("consumer_group", "original_topic", "original_partition", "original_offset", "sequence", "sequence_place", "sequence_epoch"),
    *("first_failed_at", "prior_delivery", "prior_due", "rules_hash", "report_topic", "report_partition", "report_offset", "topic"),
)
"""The columns of `decisions` that `sequence_members` reads, and the topic that a retry goes to."""

_SAID: Final = (*("consumer_group", "original_topic", "original_partition", "sequence", "state", "epoch", "failed_message", "following"),)
"""The columns of `sequences` that consumers are told."""

_DECISIONS, _MEMBERS = "decisions_of_open_sequences", "members_of_open_sequences"


@dataclass
class OpenSequences:
    """Knows the sequences that are held.

    keeps_sequences: whether any route asks for order. rules: the hash of the rules in force: routes say what becomes of followers.
    """

    spark: SparkSession
    schema: str
    keeps_sequences: Callable[[], bool]
    rules: Callable[[], str | None]
    held: dict[str, str] = field(default_factory=dict)
    """What consumers are told of each sequence that is held, as JSON, by its key."""
    orders: dict[str, list[Row]] = field(default_factory=dict)
    """The members for which an order is next, in the order of their sequence, by its key."""
    touched: set[str] | None = None
    """The sequences in which something has happened since `told` was called; None: in any."""
    _decisions: dict[str, list[Row]] = field(default_factory=dict)
    """The decisions about the messages of each sequence that is held."""
    _seen: int | None = None
    """The last batch whose decisions are accounted for; None: not even the tables were read."""
    _coming: frozenset[tuple[str, str]] = frozenset()
    """Group and topic of the places that the present tick has found to be settled further: the tables show it once its row is written."""
    _settled: frozenset[tuple[str, str]] = frozenset()
    """Those of earlier ticks that no look has accounted for."""
    _rules: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether the last look has ended: else nothing here is what the tables say."""
        return self._seen is not None

    def note_settled(self, places: Iterable[Place]) -> None:
        """Called once in each tick, with the places that it has found to be settled further."""
        self._settled |= self._coming
        self._coming = frozenset((place.consumer_group, place.topic) for place in places)

    def forget(self) -> None:
        """The next look reads the tables from the beginning."""
        self.held, self.orders, self._decisions, self._seen, self.touched = {}, {}, {}, None, None

    def told(self) -> None:
        """Consumers have been told what is held."""
        self.touched = set()

    def look(self, watermark: int, now: datetime) -> None:
        """Accounts for the decisions up to a batch, and for what has been processed. Raises an error of Spark."""
        if not self.keeps_sequences() and not self._decisions:
            # where routes ask for order no more, what is held goes on until it is free
            self.forget()
            return
        rules = self.rules()
        if self._seen is not None and self._seen >= watermark and not self._settled and self._rules == rules:
            return
        seen, self._seen = self._seen, None
        if seen is None:
            self.forget()
            came = self._of_held_sequences(watermark)
            touched = {_key(row) for row in came}
        else:
            came = self._since(seen, watermark) if seen < watermark else []
            came += self._before(came, seen)
            touched = {_key(row) for row in came} | self._processed(now)
            if self._rules != rules:
                touched |= self._decisions.keys()
        if touched:
            self._account(touched, came, now)
        self._seen, self._rules, self._settled = watermark, rules, frozenset()

    # ---------- which sequences

    def _of_held_sequences(self, upto: int) -> list[Row]:
        """All decisions about messages of sequences that are held: a pass over the tables, at a start."""
        return self._read(f"batch <= {upto:d} and {_KEY} in (select sequence_key from {self.schema}.sequences)")

    def _before(self, came: Iterable[Row], upto: int) -> list[Row]:
        """The earlier decisions about sequences that were free, and of which an earlier message is decided about once more.

        A dead letter was restored or redriven, for instance. It takes a pass over the tables.
        """
        forgotten = {_key(row) for row in came if row["prior_delivery"] is not None} - self._decisions.keys()
        return self._read(f"batch <= {upto:d}", forgotten) if forgotten else []

    def _since(self, seen: int, upto: int) -> list[Row]:
        return self._read(f"batch > {seen:d} and batch <= {upto:d}")

    def _read(self, condition: str, keys: Collection[str] | None = None) -> list[Row]:
        found = self._decided.where(
            f"{condition} and sequence is not null and outbox_row is null and decision not in ('duplicate', 'note')"
        )
        return collected((found if keys is None else found.where(F.expr(_KEY).isin(*keys))).select(*_READ))

    @cached_property
    def _decided(self) -> DataFrame:
        """All decisions, as a view that is analysed once."""
        return self.spark.table(f"{self.schema}.decisions")

    def _processed(self, now: datetime) -> set[str]:
        """The sequences of which something may have been processed: it was due, and its place is settled further."""
        if not self._settled:
            return set()
        return {
            key
            for key, rows in self._decisions.items()
            if any((row["consumer_group"], row["topic"]) in self._settled and row["due_at"] <= now for row in rows)
        }

    # ---------- what they are now

    def _account(self, touched: set[str], came: Iterable[Row], now: datetime) -> None:
        """Finds out which of the touched sequences are held, and what is to be ordered about them."""
        of_each: dict[str, list[Row]] = defaultdict(list)
        for row in came:
            of_each[_key(row)].append(row)
        for key in touched:
            of_each[key] = _last([*self._decisions.get(key, ()), *of_each[key]])
        held, orders = self._asked([row for rows in of_each.values() for row in rows], now)
        for key in touched:
            self.held.pop(key, None)
            self.orders.pop(key, None)
            self._decisions.pop(key, None)
            if key in held:
                self.held[key], self._decisions[key] = held[key], of_each[key]
            if key in orders:
                self.orders[key] = orders[key]
        if self.touched is not None:
            self.touched |= touched

    def _asked(self, decisions: list[Row], now: datetime) -> tuple[dict[str, str], dict[str, list[Row]]]:
        """What the views say of these decisions: the sequences that are held, and the members for which an order is next, by key."""
        types = self._decided.schema
        frame = self.spark.createDataFrame(decisions, StructType([types[name] for name in _READ]))
        members = None
        slots = {
            "decisions_of_sequences": _DECISIONS,
            "due_since": literal(_first_due(decisions, now)),
            "members": _MEMBERS,
        }
        try:
            with interpreted_if_few(self.spark, len(decisions), FEW_ROWS):
                frame.createOrReplaceTempView(_DECISIONS)
                members = self.spark.sql(filled(view_text(self.spark, f"{self.schema}.sequence_members"), slots)).localCheckpoint()
                members.createOrReplaceTempView(_MEMBERS)
                held = collected(self.spark.sql(filled(view_text(self.spark, f"{self.schema}.sequences"), slots)))
                orders = collected(members.where("next_order is not null and not is_refused").orderBy("sequence_key", "original_offset"))
        finally:
            for name in (_DECISIONS, _MEMBERS):
                with suppress(Exception):
                    self.spark.catalog.dropTempView(name)
            if members is not None:
                free(members)
        found: dict[str, list[Row]] = defaultdict(list)
        for row in orders:
            found[row["sequence_key"]].append(row)
        return {row["sequence_key"]: json.dumps({name: row[name] for name in _SAID}, ensure_ascii=False) for row in held}, found


# as the macro sequence_key makes it; tests/unit/test_open_sequences.py compares them
_KEY = "concat(coalesce(consumer_group, ''), ':', original_topic, '/', original_partition, '/', sequence)"


def _key(row: Row) -> str:
    return f"{row['consumer_group'] or ''}:{row['original_topic']}/{row['original_partition']}/{row['sequence']}"


def _first_due(decisions: Iterable[Row], now: datetime) -> datetime:
    """When the first of the retries that may still be open was due: results of earlier ones are not looked at."""
    return min((row["due_at"] for row in decisions if row["kind"] in ("retry", "redrive")), default=now)


def _last(rows: Iterable[Row]) -> list[Row]:
    """Of the decisions about each message, the last of each kind: earlier ones change nothing any more."""
    last: dict[tuple[str, str], Row] = {}
    for row in rows:
        one = (row["message_id"], row["decision"])
        if one not in last or _order(row) >= _order(last[one]):
            last[one] = row
    return list(last.values())


def _order(row: Row) -> tuple[object, ...]:
    return row["batch"], row["due_at"], row["report_offset"] or 0, row["input_id"]


__all__ = ["OpenSequences"]
