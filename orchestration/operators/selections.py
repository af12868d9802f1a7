"""Which dead letters or waiting messages are meant: from what the command line was told to one condition in SQL.

Whoever shows messages and whoever does something about them selects them with the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from orchestration.clock import literal, parse_moment
from orchestration.tables.spark import java_exception

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

State = Literal["open", "redriven", "recovered", "discarded", "refused", "all"]

# Functions that call any static method of the JVM: with them a condition could do more than filter.
_REACHES_OUT = ("java_method", "reflect", "try_reflect")

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class DlqError(Exception):
    """What was asked for can't be answered: what is wrong, and what to do."""

    exit_code = 2


@dataclass(frozen=True)
class Selection:
    """Which dead letters, or waiting messages: those for which everything that is given here holds.

    topic, group, error_class: a name, or a regular expression that begins with ^. A class may be named without its package.
    since: died, or failed last, at that moment or later; aware. where: one condition in SQL, checked by `checked`.
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
        """One condition in SQL. `true` if nothing is selected by."""
        parts = [
            f"message_id in ({', '.join(map(_literal, self.ids))})" if self.ids else None,
            None if self.state == "all" else f"state = {_literal(self.state)}",
            matches("original_topic", self.topic),
            matches("error_class", self.error_class, also_after=".$"),
            matches("consumer_group", self.group),
            None if self.fingerprint is None else f"fingerprint = {_literal(self.fingerprint)}",
            None if self.since is None else f"{since_column} >= {literal(self.since)}",
            # the line's end ends a comment that may stand there
            None if self.where is None else f"({self.where}\n)",
        ]
        return " and ".join(part for part in parts if part) or "true"


def parse_since(text: str, now: datetime) -> datetime:
    """The moment that `2h` before now is, or an ISO 8601 time, in UTC unless it has a zone. Raises DlqError."""
    spoken = re.fullmatch(r"(\d{1,6})([smhdw])", text.strip())
    try:
        if spoken:
            return now - timedelta(**{_UNITS[spoken[2]]: int(spoken[1])})
        return parse_moment(text)
    except (ValueError, OverflowError):
        raise DlqError(f"--since {text!r} is no time: 90s, 30m, 2h, 7d, 4w, or 2026-03-01T12:00") from None


def matches(column: str, wanted: str | None, also_after: str = "") -> str | None:
    if wanted is None:
        return None
    if wanted.startswith("^"):
        return f"{column} rlike {_literal(wanted)}"
    ends = [f"endswith({column}, {_literal(before + wanted)})" for before in also_after]
    return f"({' or '.join([f'{column} = {_literal(wanted)}', *ends])})"


def named(message_id: str) -> str:
    """The condition for one message. Its original offset is a part of its id (macro message_id): files are written in the order of
    offsets, and those that can't hold it are skipped. Where there is none in it, there is no offset.
    """
    said = re.search(r"/\d{1,10}/(\d{1,18})(?:~[0-9a-f]{8})?\Z", message_id, re.ASCII)
    return f"message_id = {_literal(message_id)}{f' and original_offset = {int(said[1])}' if said else ''}"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def check_condition(spark: SparkSession, where: str) -> str:
    """One condition over columns: parsed alone, so that it is one; no subquery, and no function that reaches out of SQL."""
    from pyspark.errors import PySparkException

    try:
        parsed = spark._jsparkSession.sessionState().sqlParser().parseExpression(where)
    except PySparkException as error:
        said = str(error).split("== SQL")[0].split("\n\nJVM")[0].strip()
        raise DlqError(f"--where {where!r} is no condition: {said}") from error
    for node in _nodes(parsed):
        kind = node.getClass().getSimpleName()
        if "Subquery" in kind or kind in ("Exists", "ListQuery"):
            raise DlqError(f"--where {where!r}: a condition over the columns, please, without a select in it")
        if kind == "UnresolvedFunction" and node.nameParts().last().lower() in _REACHES_OUT:
            raise DlqError(f"--where {where!r}: {node.nameParts().last()} does more than filter")
    return where


def _nodes(expression: Any) -> Iterator[Any]:
    yield expression
    children = expression.children()
    for place in range(children.size()):
        yield from _nodes(children.apply(place))


def check_pattern(spark: SparkSession, option: str, wanted: str | None) -> str | None:
    """A name, or a regular expression that begins with ^, as it came. Raises DlqError for one that can't be read."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if wanted is not None and wanted.startswith("^"):
        try:
            # Java's own reading: the tables are asked by it
            spark._jvm.java.util.regex.Pattern.compile(wanted)  # type: ignore[union-attr]
        except (Py4JJavaError, PySparkException) as error:
            said = java_exception(error)
            where = f" at character {said.getIndex() + 1}" if said.getIndex() >= 0 else ""
            raise DlqError(f"{option} {wanted!r} is no regular expression: {said.getDescription()}{where}") from None
    return wanted
