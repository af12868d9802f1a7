"""Answers questions about the rules: a message's history, which rule matches an error, what a policy means, where messages go.

The answers come from the SQL that decides; this module holds no rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestration.rules.policies import why_not
from orchestration.rules.policy_reading import PolicyReading, ask, read_policies
from orchestration.rules.routing import Redrive, Redriven, Routing, view
from orchestration.rules.seed_rows import Seeds
from orchestration.rules.topics_needed import Plan, plan_topics
from orchestration.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from orchestration.kafka.cluster import Topic
    from orchestration.tables.analysed_views import AnalysedViews


class ExplainError(Exception):
    """The question can't be answered."""

    exit_code = 2


@dataclass(frozen=True)
class Wait:
    """The delay after the n-th failure by a policy, in milliseconds: least and most with jitter, and the sums up to this failure."""

    failure: int
    least_ms: int
    most_ms: int
    total_least_ms: int
    total_most_ms: int


@dataclass(frozen=True)
class Schedule:
    """What a policy means: its delays, how often processing is tried (None: without end), and what happens then."""

    definition: str
    waits: tuple[Wait, ...]
    max_attempts: int | None
    max_elapsed_ms: int | None
    on_exhausted: str


@dataclass(frozen=True)
class Error:
    """An error as a report would describe it, to find the rule that matches."""

    error_class: str | None = None
    message: str | None = None
    stack: str | None = None
    code: str | None = None
    headers: Mapping[str, str] | None = None
    topic: str = ""
    group: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class Verdict:
    """The result of a classification. passed_over: earlier rules whose class matched, but not their message, code or header."""

    kind: str
    rule: str
    matched: str | None
    causes: tuple[tuple[str | None, str | None], ...]
    passed_over: tuple[str, ...]


class Rulebook:
    """Answers questions about the rules of an installation, with the SQL that decides."""

    def __init__(self, settings: Settings) -> None:
        # imported here: a command that asks a running loop needs neither Spark nor dbt, which take seconds to import
        from orchestration.tables.dbt import dbt_to_ask
        from orchestration.tables.spark import schema, session_to_ask

        self._settings = settings
        self._schema = schema(settings.project)
        self._spark: SparkSession = session_to_ask(settings)
        self._dbt = dbt_to_ask(settings)

    def routing(self) -> Routing:
        """The routing that is in force. Raises ExplainError where no rules are loaded yet."""
        self._rules("rules_hash")
        return Routing(self._spark, self._dbt, f"{self._schema}.rules")

    def routing_of(self, seeds: Seeds) -> AbstractContextManager[Routing]:
        """The routing of seeds that may not be loaded yet."""
        return Routing.of_seeds(self._spark, self._dbt, seeds)

    def redrives(self, asked: Iterable[Redrive], wanted: str | None) -> Mapping[Redrive, Redriven]:
        """Where redrives would go by the routing that is in force, as `Routing.redrives` says. Raises ExplainError without rules."""
        return self.routing().redrives(asked, wanted)

    def plan(self, seeds: Seeds, topics: Mapping[str, Topic], read: Mapping[str, Collection[str]], groups: Collection[str]) -> Plan:
        """The topics that seeds need, which may not be loaded yet: `plan_topics`."""
        with self.routing_of(seeds) as routing:
            return plan_topics(self._settings, routing, seeds, topics, read, groups)

    def reading_of(self, policies: Mapping[str, str]) -> PolicyReading:
        """Parses policies, given by name, with the SQL."""
        return read_policies(self._spark, self._dbt, policies)

    def schedule_of(self, definition: str, failures: int) -> Schedule:
        """What a policy's text means, for its first failures. Raises ExplainError, naming the clause that isn't understood."""
        rows = ask(
            self._spark,
            self._dbt,
            {"policy": definition},
            f"""
            select failure, not_understood, max_attempts, max_elapsed_ms, on_exhausted, jitter, {{delay}} as delay_ms
            from (select *, explode(sequence(1, {failures:d})) as failure from {{read}}) as policy
            order by failure
            """,
            failures="failure",
            policy="policy",
        )
        first = rows[0]
        if first["not_understood"] is not None:
            raise ExplainError(why_not(definition, first["not_understood"]))
        waits: list[Wait] = []
        for row in rows:
            if first["max_attempts"] is not None and row["failure"] >= first["max_attempts"]:
                break
            least, most = (round(row["delay_ms"] * (1 + sign * row["jitter"])) for sign in (-1, 1))
            before = waits[-1] if waits else Wait(0, 0, 0, 0, 0)
            wait = Wait(row["failure"], least, most, before.total_least_ms + least, before.total_most_ms + most)
            if first["max_elapsed_ms"] is not None and wait.total_least_ms > first["max_elapsed_ms"]:
                break
            waits.append(wait)
        return Schedule(definition, tuple(waits), first["max_attempts"], first["max_elapsed_ms"], first["on_exhausted"])

    def classify(self, error: Error) -> Verdict:
        """Asks the rules that are loaded. Raises ExplainError where there are none yet."""
        names = self._rules("header_names")
        headers = error.headers or {}
        row = (
            *(error.error_class, error.message, error.stack, None if error.code is None else error.code.upper()),
            *(error.topic, error.group, error.source, [headers.get(name) for name in names]),
        )
        columns = (
            "error_class string, message string, stack string, error_code string, original_topic string, consumer_group string, "
            "source string, rule_headers array<string>"
        )
        chain = self._dbt.compiled("{{ cause_chain('wrapper', 'error_class', 'message', 'stack') }}")
        frame = self._spark.createDataFrame([row], columns).selectExpr("*", "cast(null as string) as wrapper")
        frame = frame.selectExpr(
            *("error_class", "error_code", "original_topic", "consumer_group", "source", "rule_headers", f"{chain} as causes"),
            *("'report' as input_kind", "cast(null as string) as stated_kind", "cast(null as string) as sent_error_kind"),
            "cast(null as struct<error_kind: string>) as answered",
        )
        classified = self._dbt.compiled(
            "select error_kind, rule, matched, passed_over from {{ ref('errors_classified') }}", variables={"judge": "errors_to_judge"}
        )
        with view(frame, "errors_to_judge"):
            found = self._spark.sql(classified).collect()[0]
        causes = tuple((cause["error_class"], cause["message"]) for cause in frame.collect()[0]["causes"])
        return Verdict(found["error_kind"], found["rule"], found["matched"], causes, tuple(found["passed_over"]))

    def history_of(self, message_id: str) -> list[dict[str, Any]]:
        """A message's history in order, as `message_history` has it, with delays before quota and jitter.

        Raises ExplainError if there is no such message.
        """
        self._rules("rules_hash")
        from orchestration.tables.analysed_views import views_to_ask

        rows = history(views_to_ask(self._settings), message_id)
        if not rows:
            raise ExplainError(f"no message is called {message_id!r}: `select message_id from messages` lists them")
        waiting = [place for place, row in enumerate(rows) if row["policy_text"] and row["delay_ms"] is not None]
        if waiting:
            cases = " ".join(f"when '{place}' then {rows[place]['publish_attempt'] or rows[place]['attempt'] or 0:d}" for place in waiting)
            for row in ask(
                self._spark,
                self._dbt,
                {str(place): rows[place]["policy_text"] for place in waiting},
                "select policy, quota_multiplier, {delay} as delay_ms from {read} as read",
                failures=f"case policy {cases} end",
                policy="read",
            ):
                rows[int(row["policy"])] |= {"base_delay_ms": row["delay_ms"], "quota_multiplier": row["quota_multiplier"]}
        return rows

    def _rules(self, column: str) -> Any:
        """One column of the rules that are loaded. Raises ExplainError where there are none."""
        from orchestration.tables.catalog import missing_tables
        from orchestration.tables.migration import unreadable_tables

        name = f"{self._schema}.rules"
        if not self._spark.catalog.tableExists(name):
            raise ExplainError(missing_tables(self._settings))
        if objection := unreadable_tables(self._settings, self._spark, self._schema):
            raise ExplainError(objection)
        return self._spark.table(name).select(column).collect()[0][column]


def history(views: AnalysedViews, message_id: str) -> list[dict[str, Any]]:
    """A message's history in order, as `message_history` has it; empty if there is no such message."""
    from orchestration.tables.rows import collected

    def of_this(steps: DataFrame) -> list[Row]:
        return collected(steps.where(steps["message_id"] == message_id).orderBy("batch", "what", "at"))

    return [row.asDict() for row in views.ask("select * from message_history", of_this)]
