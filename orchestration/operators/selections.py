"""Selections of dead letters or waiting messages: from options of the command line to one condition in SQL.

Commands that show messages and commands that change something use the same selections.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from orchestration.clock import literal, parse_moment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

State = Literal["open", "redriven", "recovered", "discarded", "refused", "all"]

# Functions that call any static method of the JVM: with them a condition could do more than filter.
_REACHES_OUT = ("java_method", "reflect", "try_reflect")

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class DlqError(Exception):
    """A question about dead letters can't be answered. The message says what is wrong and what to do."""

    exit_code = 2


@dataclass(frozen=True)
class Selection:
    """Selects dead letters, or waiting messages, that match every field that is given.

    topic, group, error_class: a name, or a regular expression that begins with ^. A class may be named without its package.
    since: they died, or last failed, at this aware time or later. where: one condition in SQL, checked by `checked`.
    """

    ids: tuple[str, ...] = ()
    state: State = "all"
    topic: str | None = None
    error_class: str | None = None
    group: str | None = None
    fingerprint: str | None = None
    since: datetime | None = None
    where: str | None = None

    def condition(self, *, since_column: str = "dead_at") -> str:
        """One condition in SQL; `true` if no field is given."""
        parts = [
            f"message_id in ({', '.join(map(literal_text, self.ids))})" if self.ids else None,
            None if self.state == "all" else f"state = {literal_text(self.state)}",
            matches("original_topic", self.topic),
            matches("error_class", self.error_class, also_after=".$"),
            matches("consumer_group", self.group),
            None if self.fingerprint is None else f"fingerprint = {literal_text(self.fingerprint)}",
            None if self.since is None else f"{since_column} >= {literal(self.since)}",
            # the line end closes a comment at the end of the condition
            None if self.where is None else f"({self.where}\n)",
        ]
        return " and ".join(part for part in parts if part) or "true"


def parse_since(text: str, now: datetime) -> datetime:
    """The time of `2h` (before now), or of an ISO 8601 text, in UTC unless it has a zone. Raises DlqError."""
    spoken = re.fullmatch(r"(\d{1,6})([smhdw])", text.strip())
    try:
        if spoken:
            return now - timedelta(**{_UNITS[spoken[2]]: int(spoken[1])})
        return parse_moment(text)
    except (ValueError, OverflowError):
        raise DlqError(f"--since {text!r} is not a time; examples: 90s, 30m, 2h, 7d, 4w, 2026-03-01T12:00") from None


def matches(column: str, wanted: str | None, also_after: str = "") -> str | None:
    if wanted is None:
        return None
    if wanted.startswith("^"):
        return f"{column} rlike {literal_text(wanted)}"
    ends = [f"endswith({column}, {literal_text(before + wanted)})" for before in also_after]
    return f"({' or '.join([f'{column} = {literal_text(wanted)}', *ends])})"


def named(message_id: str) -> str:
    """The condition for one message.

    The original offset is part of the id (macro message_id), so it becomes a condition, too: files are sorted by offsets, and those that
    can't hold it are skipped. It may be that of a report: then the message has no original offset.
    """
    place = re.search(r"/\d{1,10}/(\d{1,18})(?:~[0-9a-f]{8})?\Z", message_id, re.ASCII)
    held = f" and (original_offset = {int(place[1])} or original_offset is null)" if place else ""
    return f"message_id = {literal_text(message_id)}{held}"


def literal_text(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def check_condition(spark: SparkSession, where: str) -> str:
    """Checks one condition over columns: it is parsed by itself, and has no subquery and no function that calls Java."""
    from pyspark.errors import PySparkException

    from orchestration.tables.spark import nodes

    try:
        parsed = spark._jsparkSession.sessionState().sqlParser().parseExpression(where)
    except PySparkException as error:
        reason = str(error).split("== SQL")[0].split("\n\nJVM")[0].strip()
        raise DlqError(f"--where {where!r} is not a condition: {reason}") from error
    for node in nodes(parsed):
        kind = node.getClass().getSimpleName()
        if "Subquery" in kind or kind in ("Exists", "ListQuery"):
            raise DlqError(f"--where {where!r}: must be a condition over the columns, without a select in it")
        if kind == "UnresolvedFunction" and node.nameParts().last().lower() in _REACHES_OUT:
            raise DlqError(f"--where {where!r}: {node.nameParts().last()} does more than filter")
    return where


def check_pattern(spark: SparkSession, option: str, wanted: str | None) -> str | None:
    """Returns a name, or a regular expression that begins with ^, unchanged. Raises DlqError for one that can't be parsed."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from orchestration.tables.spark import java_exception

    if wanted is not None and wanted.startswith("^"):
        try:
            # parsed by Java, as Spark's queries use Java's expressions
            spark._jvm.java.util.regex.Pattern.compile(wanted)  # type: ignore[union-attr]
        except (Py4JJavaError, PySparkException) as error:
            thrown = java_exception(error)
            where = f" at character {thrown.getIndex() + 1}" if thrown.getIndex() >= 0 else ""
            raise DlqError(f"{option} {wanted!r} is not a regular expression: {thrown.getDescription()}{where}") from None
    return wanted
