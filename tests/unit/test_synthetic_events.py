"""What the loop writes into `events` itself has a name of its own: two inputs of one name would share a decision."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import pytest
import yaml

from orchestration.tables import synthetic_events
from orchestration.tables.synthetic_events import SyntheticEvent

PROJECT = Path(__file__).parents[2]

Coordinates: TypeAlias = tuple[str, int, int, int]

NUMBERS = range(40)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: function
    for name, function in inspect.getmembers(synthetic_events, inspect.isfunction)
    if function.__module__ == synthetic_events.__name__ and not name.startswith("_")
}

MAKERS = {name: function for name, function in FUNCTIONS.items() if get_type_hints(function)["return"] is SyntheticEvent}

# Two values of each type that a constructor may take beside batch and place.
VALUES: dict[Any, tuple[Any, Any]] = {
    str: ("one", "other"),
    int: (7, 8),
    datetime: (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),
}


def values(hint: Any) -> tuple[Any, Any]:
    """Two values of a type."""
    if get_origin(hint) is Literal:
        return get_args(hint)[0], get_args(hint)[-1]
    if get_origin(hint) in (Union, UnionType):
        return None, values(get_args(hint)[0])[0]
    return VALUES[hint]


def coordinates(name: str, which: int = 0) -> list[Coordinates]:
    """All that one kind of event may be called, for small numbers. which: the first or the second value of every other parameter."""
    maker = MAKERS[name]
    hints = {parameter: hint for parameter, hint in get_type_hints(maker).items() if parameter != "return"}
    numbered = [parameter for parameter in hints if parameter in ("batch", "place")]
    others = {parameter: values(hint)[which] for parameter, hint in hints.items() if parameter not in numbered}
    made = [maker(**dict(zip(numbered, numbers, strict=True)), **others) for numbers in itertools.product(NUMBERS, repeat=len(numbered))]
    return [(event.topic_id, event.partition, event.offset, event.index) for event in made]


def test_every_kind_of_event_that_the_loop_writes_is_looked_at() -> None:
    assert set(MAKERS) >= {"breaker_order", "command_order", "gap", "start"}
    assert set(FUNCTIONS) - set(MAKERS) == {
        "answered_already",
        "as_rows",
        "decided_anew",
        "decided_before",
        "not_waiting",
        "with_epochs",
    }, "whatever else is new here makes no events"


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_two_events_of_one_kind_have_two_names(name: str) -> None:
    made = coordinates(name)
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_nothing_but_its_batch_and_its_place_there_names_an_event(name: str) -> None:
    assert coordinates(name, 0) == coordinates(name, 1)


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(sorted(MAKERS), 2)])
def test_events_of_two_kinds_never_have_one_name(one: str, other: str) -> None:
    assert not set(coordinates(one)) & set(coordinates(other))


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_no_event_is_called_as_one_that_an_earlier_version_wrote(name: str) -> None:
    """Earlier versions numbered starts by generation and gaps by batch, both under partition 0."""
    assert all((topic_id, partition) not in {("loop", 0)} for topic_id, partition, _, _ in coordinates(name))


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_every_event_is_under_the_topic_id_of_the_loop(name: str) -> None:
    assert {topic_id for topic_id, *_ in coordinates(name)} == {synthetic_events.TOPIC_ID}


@pytest.mark.parametrize("kafka_id", ["AAAAAAAAAAAAAAAAAAAAAA", "wCpcsuYQTe-dBmGjm2_QGA", "name:loop", "wCpcsuYQTe-dBmGjm2_QGA~7"])
def test_no_topic_of_kafka_has_the_id_of_what_the_loop_writes(kafka_id: str) -> None:
    """Kafka's ids have 22 characters; where it has none, `name:` and the topic's name stand for it."""
    assert kafka_id != synthetic_events.TOPIC_ID
    assert len(synthetic_events.TOPIC_ID) != 22


def modules_with(pattern: re.Pattern[str], also: str = "") -> list[str]:
    """The modules of orchestration/ in which a pattern occurs. also: a text that must occur there, too."""
    folder = PROJECT / "orchestration"
    texts = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))}
    return [name for name, text in texts.items() if also in text and pattern.search(text)]


def test_no_other_module_gives_an_event_the_coordinates_of_the_loop() -> None:
    partitions = [name for name in vars(synthetic_events) if re.fullmatch(r"_[A-Z]+", name)]
    assert len(partitions) == len(MAKERS), "the partition of each kind"
    here = ["tables/synthetic_events.py"]
    assert modules_with(re.compile(r"\b(?:TOPIC_ID|SyntheticEvent)\b")) == here
    assert modules_with(re.compile(rf"\b(?:{'|'.join(partitions)})\b"), also="synthetic_events") == []
    # in Python or in SQL; a module without Spark makes no rows
    assert modules_with(re.compile(rf"""['"]{synthetic_events.TOPIC_ID}['"]"""), also="pyspark") == here


def test_only_these_modules_append_to_events() -> None:
    """Each has its rows from Kafka, from a table, from an outbox, or from a constructor. `seal` is given the name of the ledger."""
    appends = re.compile(r"""ledgers\.append(?:_once)?\(\s*(?:"events"|ledger),""")
    assert modules_with(appends) == [
        f"loop/{name}.py" for name in ("circuit_breakers", "commands", "followers", "intake", "outboxes", "stored", "table_sources")
    ]


def test_only_these_modules_make_coordinates() -> None:
    """Those of Kafka's records and of rows of tables and outboxes, and those of the loop."""
    makes = re.compile(r"""\btopic_id string\b|(?:alias|withColumn)\("topic_id"|"topic_id":""")
    assert modules_with(makes) == ["loop/event_rows.py", "loop/table_rows.py", "tables/synthetic_events.py"]


def test_the_columns_are_those_of_the_ledger() -> None:
    (model,) = yaml.safe_load((PROJECT / "models" / "ledgers" / "events.yml").read_text(encoding="utf-8"))["models"]
    columns = [(column["name"], column["data_type"]) for column in model["columns"]]
    given = [column for column in columns if column[0] not in ("batch", "recorded_at", "generation")]
    assert ", ".join(f"{name} {kind}" for name, kind in given) == synthetic_events.SCHEMA
    assert [field.name for field in fields(SyntheticEvent)] == [name for name, _ in given]
