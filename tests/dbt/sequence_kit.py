"""Sequences in tables of a test: reports of what was not tried, sends, what was processed, and the loop's orders about followers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import Row

from orchestration.loop.consumer_progress import Place
from orchestration.loop.followers import Followers
from orchestration.loop.open_sequences import OpenSequences
from tests.dbt.harness import Home, Report, failed_again, report

GROUP = "billing"


def follows(topic: str, offset: int, **how: Any) -> Report:
    """The report of a consumer that has not tried a record."""
    return report(topic, offset, error="PreviousMessageWasRecovered", **how)


def again(delivery: Row, offset: int, error: str) -> Report:
    """A report about a retry: that it failed, or that it was not tried."""
    return failed_again(delivery, offset, error=error)


def delivered(home: Home, *deliveries: Row) -> None:
    """They are sent, and lie in their topics one after another."""
    rows = [
        (
            *(one[name] for name in ("delivery_id", "due_at", "kind", "message_id", "topic", "consumer_group")),
            "delivered",
            0,
            place,
            home.now,
        )
        for place, one in enumerate(deliveries)
    ]
    columns = (
        "delivery_id string, due_at timestamp, kind string, message_id string, topic string, consumer_group string, outcome string,"
        "partition int, offset bigint, sent_at timestamp"
    )
    home.append("publish_results", home.spark.createDataFrame(rows, columns))


@dataclass
class Looking:
    """A loop's knowledge of sequences, which all tests here share: what it keeps from look to look must be what the tables say."""

    home: Home
    followers: Followers

    @classmethod
    def anew(cls, home: Home) -> Looking:
        """As after a start, when everything is read from the tables."""
        known = OpenSequences(home.spark, home.schema, lambda: True, lambda: str(home.read("rules")[0]["rules_hash"]))
        return cls(home, Followers(home.spark, home.schema, home._ledgers, known, 1000))

    def look(self) -> int:
        return self.followers.look(self.home.now, self.home.batch)

    @property
    def known(self) -> tuple[dict[str, str], dict[str, list[str]]]:
        sequences = self.followers.sequences
        return sequences.held, {key: [str(one["delivery_id"]) for one in rows] for key, rows in sequences.orders.items()}


LOOKING: dict[int, Looking] = {}


def looking(home: Home) -> Looking:
    """The one of a home."""
    return LOOKING.setdefault(id(home), Looking.anew(home))


def processed(home: Home, delivery: Row, offset: int) -> None:
    """The group has committed the offset after a send, and nothing was reported."""
    home.later(seconds=1)
    home.append_tick(home.batch, (GROUP, delivery["topic"], 0, offset + 1))
    sequences = looking(home).followers.sequences
    sequences.note_settled([Place(GROUP, delivery["topic"], 0)])
    # the next tick: the row of the one before is written
    sequences.note_settled([])


def orders(home: Home, *topics: str) -> list[Row]:
    """What the loop orders next is decided: the decisions about these topics, by the place of their originals."""
    home.later(seconds=1)
    watermark = home.batch
    loop, started = looking(home), Looking.anew(home)
    for one in (loop, started):
        one.followers.sequences.look(watermark, home.now)
    assert loop.known == started.known, f"kept {loop.known}, read {started.known}"
    ordered = loop.followers.look(home.now, watermark)
    # what is ordered is not ordered again before it is decided, by the same loop or by the next
    assert [one.followers.look(home.now, watermark) for one in (loop, started)] == [0, 0]
    home.decide()
    made = [row for row in home.read("deliveries") if row["batch"] > watermark]
    assert len(made) == ordered
    made = [row for row in made if row["original_topic"] in topics]
    return sorted(made, key=lambda row: (row["original_topic"], row["original_partition"], row["original_offset"]))


def ready(home: Home) -> dict[str, Row]:
    """What may be sent, by delivery id."""
    return {row["delivery_id"]: row for row in home.read("ready")}


def said(rows: list[Row]) -> list[tuple[str, str, int]]:
    return [(row["decision"], row["reason"], row["attempt"]) for row in rows]


def sequence(home: Home, topic: str) -> tuple[Any, ...] | None:
    """State, following, sent and dead of the one sequence of a topic; None if it is free."""
    found = [row for row in home.read("sequences") if row["original_topic"] == topic]
    assert len(found) <= 1
    return tuple(found[0][name] for name in ("state", "following", "sent", "dead")) if found else None


def state(home: Home, message: Row) -> str:
    (found,) = (row["state"] for row in home.read("messages") if row["message_id"] == message["message_id"])
    return str(found)
