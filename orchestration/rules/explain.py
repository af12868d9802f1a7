"""Answers questions about the rules: why a message is where it is, which rule matches an error, and what a policy means.

The answers come from the SQL that decides; this module holds no rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orchestration.rules.policies import why_not
from orchestration.rules.routing import Routing, view
from orchestration.rules.seed_rows import Seeds
from orchestration.settings import Settings
from orchestration.tables.catalog import missing_tables
from orchestration.tables.dbt import dbt_to_ask
from orchestration.tables.migration import unreadable_tables
from orchestration.tables.rows import collected
from orchestration.tables.spark import schema, session_to_ask

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


class ExplainError(Exception):
    """The question can't be answered."""

    exit_code = 2


@dataclass(frozen=True)
class PolicyProblem:
    """A policy that can't be parsed, and the first of its clauses that isn't understood."""

    name: str
    definition: str
    clause: str


@dataclass(frozen=True)
class PolicyReading:
    """What is wrong with policies: those that can't be parsed, and, by name, the clause of a policy that is allowed for processing only."""

    problems: tuple[PolicyProblem, ...]
    processing_only: Mapping[str, str]


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
    """The result of a classification: kind, rule, what it matched, the causes, and the rules before it whose other conditions failed."""

    kind: str
    rule: str
    matched: str | None
    causes: tuple[tuple[str | None, str | None], ...]
    passed_over: tuple[str, ...]


class Rulebook:
    """Runs questions about the rules of an installation, with the SQL that decides."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._spark: SparkSession = session_to_ask(settings)
        self._dbt = dbt_to_ask(settings)

    def routing(self) -> Routing:
        """The routing that is in force. Raises ExplainError where no rules are loaded yet."""
        self._rules("rules_hash")
        return Routing(self._spark, self._dbt, f"{schema(self._settings.project)}.rules")

    def routing_of(self, seeds: Seeds) -> AbstractContextManager[Routing]:
        """The routing of seeds that may not be loaded yet."""
        return Routing.of_seeds(self._spark, self._dbt, seeds)

    def reading_of(self, policies: Mapping[str, str]) -> PolicyReading:
        """Parses policies, given by name, with the SQL."""
        rows = self._ask(policies, "select policy, definition, not_understood, processing_only from {read} order by policy")
        return PolicyReading(
            tuple(
                PolicyProblem(row["policy"], row["definition"], row["not_understood"]) for row in rows if row["not_understood"] is not None
            ),
            {row["policy"]: row["processing_only"] for row in rows if row["processing_only"] is not None},
        )

    def schedule_of(self, definition: str, failures: int) -> Schedule:
        """What a policy's text means, for its first failures. Raises ExplainError, naming the clause that isn't understood."""
        rows = self._ask(
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
        rows = history(self._spark, schema(self._settings.project), message_id)
        if not rows:
            raise ExplainError(f"no message is called {message_id!r}: `select message_id from messages` lists them")
        waiting = [place for place, row in enumerate(rows) if row["policy_text"] and row["delay_ms"] is not None]
        if waiting:
            cases = " ".join(f"when '{place}' then {rows[place]['publish_attempt'] or rows[place]['attempt'] or 0:d}" for place in waiting)
            for row in self._ask(
                {str(place): rows[place]["policy_text"] for place in waiting},
                "select policy, quota_multiplier, {delay} as delay_ms from {read} as read",
                failures=f"case policy {cases} end",
                policy="read",
            ):
                rows[int(row["policy"])] |= {"base_delay_ms": row["delay_ms"], "quota_multiplier": row["quota_multiplier"]}
        return rows

    def _rules(self, column: str) -> Any:
        """One column of the rules that are loaded. Raises ExplainError where there are none."""
        name = f"{schema(self._settings.project)}.rules"
        if not self._spark.catalog.tableExists(name):
            raise ExplainError(missing_tables(self._settings))
        if objection := unreadable_tables(self._settings, self._spark, schema(self._settings.project)):
            raise ExplainError(objection)
        return self._spark.table(name).select(column).collect()[0][column]

    def _ask(self, policies: Mapping[str, str], statement: str, **delay: str) -> list[Row]:
        """Runs a statement over policies: {read} stands for the parsed policies, {delay} for the delay of a failure by one of them."""
        read = self._dbt.compiled("{{ read_policies('policies_to_read') }}")
        wait = ""
        if delay:
            arguments = f"{json.dumps(delay['failures'])}, {json.dumps(delay['policy'])}"
            wait = self._dbt.compiled("{{ backoff_delay_ms(" + arguments + ") }}")
        with view(self._spark.createDataFrame(list(policies.items()), "policy string, definition string"), "policies_to_read"):
            rows: list[Row] = self._spark.sql(statement.format(read=f"({read})", delay=wait)).collect()
        return rows


def history(spark: SparkSession, tables: str, message_id: str) -> list[dict[str, Any]]:
    """A message's history in order, as `message_history` has it; empty if there is no such message. tables: the schema of the tables."""
    steps = spark.table(f"{tables}.message_history")
    return [row.asDict() for row in collected(steps.where(steps["message_id"] == message_id).orderBy("batch", "what", "at"))]


def in_words(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """A message's history in words: pairs of a time and what happened then; a line that explains the one before has no time."""
    last_failure: tuple[Any, ...] | None = None
    for row in rows:
        at = _time(row["at"])
        if row["what"] == "sent":
            yield at, _send_text(row)
            continue
        if row.get("command"):
            ticket = f" ({row['ticket']})" if row["ticket"] else ""
            yield at, f"{row['who']} gave command {row['command']}: {row['why']}{ticket}"
            yield "", _decision_text(row)
            continue
        failure = (row["life_cycle"], row["attempt"], row["failed_at"], row["error_class"], row["error_message"])
        # what is sent anew keeps the error that it had: nothing has failed since
        if failure != last_failure:
            yield from _failure_lines(row)
        last_failure = failure
        yield at, _decision_text(row)
        if row["rules_have_changed"]:
            yield "", "the rules have changed since: today another decision may be made"


def _failure_lines(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    failed = f"{row['error_class'] or 'an error without a class'}{': ' + row['error_message'] if row['error_message'] else ''}"
    bound = "" if row["max_attempts"] is None else f" of {row['max_attempts']}"
    counted = "" if row["attempt"] is None else f", attempt {row['attempt']}{bound}"
    yield _time(row["failed_at"] or row["at"]), f"failed{counted}: {failed}"
    if row["rule"]:
        matched = f", which matched {row['matched']}" if row["matched"] else ""
        yield "", f"{row['error_kind']}, by {row['rule']}{matched}"
    for rule in row["passed_over"] or ():
        yield "", f"not by {rule}: its message, code or header doesn't match"


def _decision_text(row: Mapping[str, Any]) -> str:
    where = f" to {row['topic']}" if row["topic"] else ""
    when = f", due at {_time(row['due_at'])}" if row["delivery_id"] else ""
    decided = f"{row['decision']} ({row['reason']}){where}{when}"
    if row["delay_ms"] is None:
        return decided
    base = row.get("base_delay_ms")
    if row["error_kind"] == "backpressure" or base is None:
        return f"{decided}: {row['delay_ms']} ms by {row['policy']}: {row['policy_text']}"
    quota = row["quota_multiplier"] if row["error_kind"] == "quota" else 1
    by_quota = "" if quota == 1 else f" x {quota:g} for the quota"
    jitter = f" x {row['delay_ms'] / (base * quota):.3f} of jitter" if base * quota else ""
    return f"{decided}: {base:g} ms{by_quota}{jitter} = {row['delay_ms']} ms by {row['policy']}: {row['policy_text']}"


def _send_text(row: Mapping[str, Any]) -> str:
    if row["outcome"] == "delivered":
        return f"sent to {row['topic']}/{row['partition']}/{row['offset']}, {row['lateness_ms']} ms after it was due"
    if row["outcome"] == "unknown":
        return f"sent to {row['topic']}, with an unknown outcome: sent again after {_time(row['not_before'])}"
    return f"not sent to {row['topic']}: {row['outcome']}: {row['error_class']}: {row['error_message']} ({row['error_kind']})"


def _time(moment: datetime | None) -> str:
    return "-" if moment is None else moment.astimezone(UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
