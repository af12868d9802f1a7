"""What the loop writes into `events` itself has a name of its own: two inputs of one name would share a decision."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable

import pytest

from orchestration.tables import synthetic_events
from orchestration.tables.synthetic_events import Coordinates

NUMBERS = range(40)

MAKERS: dict[str, Callable[..., Coordinates]] = {
    name: made
    for name, made in inspect.getmembers(synthetic_events, inspect.isfunction)
    if made.__module__ == synthetic_events.__name__ and not name.startswith("_")
}


def coordinates(name: str) -> list[Coordinates]:
    """All that one kind of event may be called, for small numbers."""
    maker = MAKERS[name]
    return [maker(*numbers) for numbers in itertools.product(NUMBERS, repeat=len(inspect.signature(maker).parameters))]


def test_every_kind_of_event_that_the_loop_writes_is_looked_at() -> None:
    assert sorted(MAKERS) == ["breaker_order", "command_order", "gap", "start"]


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_two_events_of_one_kind_have_two_names(name: str) -> None:
    made = coordinates(name)
    assert len(set(made)) == len(made)


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(sorted(MAKERS), 2)])
def test_events_of_two_kinds_never_have_one_name(one: str, other: str) -> None:
    assert not set(coordinates(one)) & set(coordinates(other))


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_no_event_is_called_as_one_that_an_earlier_version_wrote(name: str) -> None:
    """Earlier versions numbered starts by generation and gaps by batch, both under partition 0."""
    assert all((topic_id, partition) not in {("loop", 0)} for topic_id, partition, _, _ in coordinates(name))


@pytest.mark.parametrize("kafka_id", ["AAAAAAAAAAAAAAAAAAAAAA", "wCpcsuYQTe-dBmGjm2_QGA", "name:loop", "wCpcsuYQTe-dBmGjm2_QGA~7"])
def test_no_topic_of_kafka_has_the_id_of_what_the_loop_writes(kafka_id: str) -> None:
    """Kafka's ids have 22 characters; where it has none, `name:` and the topic's name stand for it."""
    assert kafka_id != synthetic_events.TOPIC_ID
    assert len(synthetic_events.TOPIC_ID) != 22
