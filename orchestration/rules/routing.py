"""Finds out where messages go, with the SQL that decides it: the macros in macros/routing/, which the models of a decide run call.

This module doesn't know which of two routes wins, or how the name of a destination is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestration.rules.seed_rows import Seeds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from orchestration.tables.dbt import Dbt

Redrive = tuple[str, str | None, str | None]
"""Original topic, consumer group, and kind of error of a dead letter that is to be sent again."""

Redriven = tuple[str | None, str | None]
"""Where a redrive would go, and the reason for which it would be refused instead; one of the two."""

# The columns of the seeds that the routing macros read.
_COLUMNS = {
    "sources": ("source", "topic", "speaks_for"),
    "routes": ("topic", "consumer_group", "error_kind", "retry_topic", "dead_letter_topic", "sequence"),
    "dead_letter_topics": ("error_class", "topic", "consumer_group", "dead_letter_topic"),
}


@dataclass(frozen=True)
class Roles:
    """The relation of a topic to the sources: the names of those that read it, and of those that may report its failures.

    dead_letter_topic_of_reports: if a source reads the topic, where reports from it go that can't be placed.
    """

    read_by: frozenset[str]
    spoken_for_by: frozenset[str]
    dead_letter_topic_of_reports: str


@dataclass(frozen=True)
class Destination:
    """A destination for messages of an original topic, by a route or by the seed dead_letter_topics. what: what goes there.

    keeps_order: whether the route asks for the order of sequences.
    """

    topic: str
    what: str
    keeps_order: bool = False


class Routing:
    """Answers questions about the routing of an installation."""

    def __init__(self, spark: SparkSession, dbt: Dbt, rules: str) -> None:
        """rules: a relation of one row, with the columns of `rules` that are about routing."""
        self._spark = spark
        self._dbt = dbt
        self._rules = rules

    @classmethod
    @contextmanager
    def of_seeds(cls, spark: SparkSession, dbt: Dbt, seeds: Seeds) -> Iterator[Routing]:
        """The routing of seeds that were read as files: what `rules` will hold after the next load."""
        with ExitStack() as views:
            for name, columns in _COLUMNS.items():
                rows = [(row.line, *(row[column] for column in columns)) for row in seeds.rows[name]]
                frame = spark.createDataFrame(rows, ", ".join(("line int", *(f"{column} string" for column in columns))))
                views.enter_context(view(frame, f"{name}_to_ask"))
            rules = dbt.compiled("{{ routing_of_seeds('sources_to_ask', 'routes_to_ask', 'dead_letter_topics_to_ask') }}")
            views.enter_context(view(spark.sql(rules), "rules_to_ask"))
            yield cls(spark, dbt, "rules_to_ask")

    def roles(self, topics: Iterable[str]) -> dict[str, Roles]:
        """The relation of each of these topics to the sources."""
        rows = self._ask("topics_asked", [(topic,) for topic in topics], "topic string")
        return {
            row["topic"]: Roles(frozenset(row["read_by"]), frozenset(row["spoken_for_by"]), row["dead_letter_topic_of_reports"])
            for row in rows
        }

    def destinations(self, asked: Sequence[tuple[str, str | None]]) -> dict[tuple[str, str | None], list[Destination]]:
        """The destinations of topics and groups (None: none is known), for all kinds of errors; without templates that contain {kind}."""
        found: dict[tuple[str, str | None], list[Destination]] = {one: [] for one in asked}
        rows = self._ask("destinations_asked", asked, "topic string, consumer_group string")
        for row in sorted(rows, key=lambda row: int(row["place"])):
            what = row["what"] if row["error_class"] is None else f"{row['what']} ({row['error_class']})"
            found[row["topic"], row["consumer_group"]].append(Destination(row["destination"], what, keeps_order=row["sequence"] != ""))
        return found

    def redrives(self, asked: Iterable[Redrive], wanted: str | None) -> Mapping[Redrive, Redriven]:
        """Where each redrive would go, or why it would be refused. wanted: `retry`, `original`, a topic, or None."""
        rows = self._ask(
            "redrives_asked",
            [(*one, wanted) for one in asked],
            "original_topic string, consumer_group string, error_kind string, wanted string",
        )
        return {(row["original_topic"], row["consumer_group"], row["error_kind"]): (row["destination"], row["objection"]) for row in rows}

    def _ask(self, macro: str, asked: Sequence[tuple[str | None, ...]], columns: str) -> list[Row]:
        """Runs the statement that a macro makes of the questions and of the rules."""
        if not asked:
            return []
        statement = self._dbt.compiled("{{ " + f"{macro}('asked_of_routing', '{self._rules}')" + " }}")
        with view(self._spark.createDataFrame(asked, columns), "asked_of_routing"):
            rows: list[Row] = self._spark.sql(statement).collect()
        return rows


@contextmanager
def view(frame: DataFrame, name: str) -> Iterator[None]:
    """Makes a frame readable under a name. Texts that people wrote are rows of it, so they never become part of a statement."""
    frame.createOrReplaceTempView(name)
    try:
        yield
    finally:
        frame.sparkSession.catalog.dropTempView(name)
