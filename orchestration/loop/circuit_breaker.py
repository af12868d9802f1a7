"""One circuit breaker as a value: what a row of `ticks` keeps of it, which decision answers its probe, and its records for consumers.

An open circuit breaker holds retries back; a closed one lets them pass.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import Row

from orchestration.loop.consumer_progress import Place

# A decision about a probe means that the probe has failed, unless it is one of _NO_ANSWER (about a second report of it, or an order that
# sends nothing), or refuses an order for one of _REFUSED_ORDER. A refused report does mean that the probe has failed.
# tests/unit/test_decision_reasons.py compares both tuples with the table of reasons.
_NO_ANSWER = ("duplicate", "noted", "discarded", "restored", "purged")
_REFUSED_ORDER = ("payload_was_dropped", "not_discarded", "wrong_kind_of_delivery", "no_original_topic", "no_such_delivery")

# The fields that a row of `ticks` keeps of a circuit breaker, beside its probe.
_KEPT = ("opened_at", "closed_at", "error_class", "probes", "next_probe", "floor")


@dataclass(frozen=True)
class Probe:
    """A delivery that was sent to see whether consumers can process the messages of its key again, and where its record is in Kafka."""

    delivery_id: str
    due_at: datetime
    sent_at: datetime
    consumer_group: str | None
    topic: str
    partition: int
    offset: int | None
    """None: the brokers had the record already, and did not say where."""

    @property
    def place(self) -> Place | None:
        """The partition and the group that reads the probe there; None if the group is unknown."""
        return None if self.consumer_group is None else Place(self.consumer_group, self.topic, self.partition)

    @classmethod
    def of(cls, row: Row | Mapping[str, Any]) -> Probe:
        """From a result of a send, or from a row of `ticks`."""
        return cls(*(row[field.name] for field in dataclasses.fields(cls)))


@dataclass(frozen=True)
class CircuitBreaker:
    """The circuit breaker of one key. A row of `ticks` keeps the fields up to `probe`; a start finds `waits_for` in the ledger `events`.

    floor: no delivery that it holds was due before this time. next_probe: when to look for a probe, while none is under way. waits_for: the
    batch of the last probe or release orders: no further ones are written until it is decided; 0: none. picks_anew: true if the
    last probe could not be sent, or its message is not retried (dead, dropped, refused): the next probe is then the oldest delivery of all,
    held ones included; otherwise the oldest that is due, normally the next retry of that message, and a held one only if nothing is due.
    next_release: when to order releases again, if the rules refused some;
    refused: how many deliveries they refused.
    """

    opened_at: datetime
    error_class: str | None
    next_probe: datetime
    floor: datetime
    closed_at: datetime | None = None
    probes: int = 0
    probe: Probe | None = None
    waits_for: int = 0
    picks_anew: bool = False
    released_at: datetime | None = None
    next_release: datetime | None = None
    refused: int = 0

    def is_looking(self, now: datetime) -> bool:
        """Whether it is time for the next probe, none is under way, and none is ordered."""
        return self.probe is None and self.next_probe <= now and self.waits_for == 0

    @property
    def is_open(self) -> bool:
        """Whether it holds back what is due under its key."""
        return self.closed_at is None

    @classmethod
    def from_row(cls, row: Row | Mapping[str, Any]) -> CircuitBreaker:
        """From a row of `ticks`."""
        probe = row["probe"]
        return cls(**{name: row[name] for name in _KEPT}, probe=Probe.of(probe) if probe else None)

    def as_row(self) -> dict[str, Any]:
        """As a row of `ticks` keeps it."""
        return {**{name: getattr(self, name) for name in _KEPT}, "probe": self.probe and dataclasses.asdict(self.probe)}


def answers_to_probes(rows: Iterable[Row]) -> dict[str, Row]:
    """The decision that answers each failed probe, by the probe's delivery id. The order of the rows doesn't matter.

    A delivery has one successor and any number of duplicates. A report that was refused for its destination may precede the successor.
    """
    answers: dict[str, Row] = {}
    for row in rows:
        probe = row["answered"]
        if probe is None or row["decision"] in _NO_ANSWER or row["reason"] in _REFUSED_ORDER:
            continue
        if probe not in answers or answers[probe]["decision"] == "refused":
            answers[probe] = row
    return answers


def key_parts(key: str) -> tuple[str, str, str]:
    """Group, topic and partition of a key; the group and the partition may be empty."""
    group, _, topic = key.rpartition(":")
    topic, _, partition = topic.partition("/")
    return group, topic, partition


def record_of(key: str, breaker: CircuitBreaker) -> str:
    """The record of `circuit_breakers_topic`, as JSON. The state stays `open` while a probe is under way: consumers still have to wait."""
    return _as_json(
        {
            "breaker_key": key,
            **_parts(key),
            "state": "open" if breaker.is_open else "closed",
            "opened_at": _iso(breaker.opened_at),
            "closed_at": _iso(breaker.closed_at),
            "error_class": breaker.error_class,
            "probes": breaker.probes,
        }
    )


def gate_record_of(key: str, breaker: CircuitBreaker) -> str:
    """The record of `gates_topic`, in the words of an earlier version, where `closed` means that retries are held back."""
    return _as_json(
        {
            "scope": key,
            **_parts(key),
            "state": "closed" if breaker.is_open else "open",
            "since": _iso(breaker.opened_at),
            "opened_at": _iso(breaker.closed_at),
            "error_class": breaker.error_class,
            "probes": breaker.probes,
        }
    )


def _parts(key: str) -> dict[str, object]:
    group, topic, partition = key_parts(key)
    return {"consumer_group": group or None, "topic": topic, "partition": int(partition) if partition else None}


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds")


def _as_json(fields: Mapping[str, object]) -> str:
    return json.dumps({name: value for name, value in fields.items() if value is not None})
