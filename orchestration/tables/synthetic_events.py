"""The events that the loop writes itself, and what they are called.

The decide step names each input by its coordinates (topic id, partition, offset, index), so no two events may share them. Each kind of
event has a partition of its own under one topic id, and is numbered by the batch that brings it, and its place there. An event that is
written in any other way may get the name of another one: then one of the two has no decision of its own.
"""

from __future__ import annotations

from typing import TypeAlias

TOPIC_ID = "loop"
"""No topic of Kafka's has this id: Kafka's have 22 characters, and what stands for them where Kafka has none begins with `name:`."""

COORDINATES = "topic_id string, partition int, offset bigint, index int"
"""The columns that `Coordinates` are for, as a DataFrame's schema has them."""

NAMES = tuple(column.split()[0] for column in COORDINATES.split(", "))

Coordinates: TypeAlias = tuple[str, int, int, int]
"""What an event is called: its topic id, partition, offset and index."""

# Not 0: earlier versions wrote both starts and gaps there, and tables have them still.
_BREAKERS, _COMMANDS, _GAPS, _STARTS = 1, 2, 3, 4


def breaker_order(batch: int, place: int) -> Coordinates:
    """What a circuit breaker asks of a delivery: a release, or a probe."""
    return (TOPIC_ID, _BREAKERS, batch, place)


def command_order(batch: int, place: int) -> Coordinates:
    """What a command asks of a delivery. place: in the list of the command, as the index tells how much of it was issued."""
    return (TOPIC_ID, _COMMANDS, batch, place)


def gap(batch: int, place: int) -> Coordinates:
    """Offsets that are away."""
    return (TOPIC_ID, _GAPS, batch, place)


def start(batch: int) -> Coordinates:
    """A loop has taken over, or makes sure of the end of a ledger."""
    return (TOPIC_ID, _STARTS, batch, 0)
