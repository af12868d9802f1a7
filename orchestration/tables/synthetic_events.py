"""The coordinates of the events that the loop writes itself.

The decide step names each input by its coordinates (topic id, partition, offset, index), so no two events may share them. Each kind of
event has a partition of its own under one topic id; offset and index are the batch of its append and its place there. If an event is
written in any other way, it may get the coordinates of another one; then one of the two gets no decision.
"""

from __future__ import annotations

from typing import TypeAlias

TOPIC_ID = "loop"
"""No topic of Kafka's has this id: Kafka's ids have 22 characters, and the ones used if Kafka has none begin with `name:`."""

COORDINATES = "topic_id string, partition int, offset bigint, index int"
"""The columns of `Coordinates`, as the schema of a DataFrame."""

NAMES = tuple(column.split()[0] for column in COORDINATES.split(", "))

Coordinates: TypeAlias = tuple[str, int, int, int]
"""Topic id, partition, offset and index of an event."""

# Not 0: earlier versions wrote both starts and gaps there, and tables have them still.
_BREAKERS, _COMMANDS, _GAPS, _STARTS = 1, 2, 3, 4


def breaker_order(batch: int, place: int) -> Coordinates:
    """The order of a circuit breaker: a release, or a probe."""
    return (TOPIC_ID, _BREAKERS, batch, place)


def command_order(batch: int, place: int) -> Coordinates:
    """An order of a command. place: the place in the command's list; the highest index shows how much of the list is issued."""
    return (TOPIC_ID, _COMMANDS, batch, place)


def gap(batch: int, place: int) -> Coordinates:
    """A gap."""
    return (TOPIC_ID, _GAPS, batch, place)


def start(batch: int) -> Coordinates:
    """The row by which a loop in charge makes sure that appends to `events` that were begun before are refused."""
    return (TOPIC_ID, _STARTS, batch, 0)
