"""Checks between rows of the seeds: duplicate keys, and references to rows that don't exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from orchestration.rules.seed_columns import KEYS
from orchestration.rules.seed_rows import Row
from orchestration.rules.topic_patterns import topic_matches
from orchestration.rules.vocabulary import ANY_DIALECT, DIALECTS, EVERYTHING, NO_TOPIC

Rows = Mapping[str, tuple[Row, ...]]


def contradictions(directory: Path, rows: Rows) -> Iterator[str]:
    """A line for each row that contradicts another one, or names one that doesn't exist. directory: that of the files."""
    for find in (_doubles, _dialects, _policies, _error_sets, _privacies, _destinations, _outboxes):
        yield from find(directory, rows)


def _doubles(directory: Path, rows: Rows) -> Iterator[str]:
    for name, keys in KEYS.items():
        seen: dict[tuple[str, ...], int] = {}
        for row in rows[name]:
            key = tuple(row[column] for column in keys)
            if key in seen:
                same = f"has the same {', '.join(keys)} as line {seen[key]} ({' / '.join(key)})"
                yield f"{directory / name}.csv:{row.line}: {same}: remove one of the two"
            seen.setdefault(key, row.line)


def _outboxes(directory: Path, rows: Rows) -> Iterator[str]:
    """Names that differ only in hyphens: Dagster would give both the same name; and tables that two would read, each row twice."""
    first: dict[str, Row] = {}
    readers: dict[tuple[str, str], Row] = {}
    for row in rows["outboxes"]:
        reader = readers.setdefault((row["connection"], row["table"]), row)
        if reader is not row:
            yield (
                f"{directory / 'outboxes.csv'}:{row.line}: table is {row['table']!r}: the outbox {reader['outbox']!r} on line "
                f"{reader.line} reads it, too, and each row would be published twice; remove one of the two"
            )
        elif (alike := _maybe_the_same(row, readers)) is not None:
            yield (
                f"{directory / 'outboxes.csv'}:{row.line}: table is {row['table']!r}: it may be {alike['table']!r} on line {alike.line}, "
                "and each row would be published twice; write both with their schema"
            )
        other = first.setdefault(row["outbox"].replace("-", "_"), row)
        if other["outbox"] != row["outbox"]:
            yield (
                f"{directory / 'outboxes.csv'}:{row.line}: outbox is {row['outbox']!r}: differs from "
                f"{other['outbox']!r} on line {other.line} only in hyphens; give it another name"
            )


def _maybe_the_same(row: Row, readers: Mapping[tuple[str, str], Row]) -> Row | None:
    """A table of the same connection with the same name, of which only one is written with its schema."""
    schema, _, name = row["table"].rpartition(".")
    for (connection, table), other in readers.items():
        its_schema, _, its_name = table.rpartition(".")
        if connection == row["connection"] and its_name == name and bool(its_schema) != bool(schema):
            return other
    return None


def _dialects(directory: Path, rows: Rows) -> Iterator[str]:
    known = (*DIALECTS, ANY_DIALECT, *dict.fromkeys(row["dialect"] for row in rows["dialects"]))
    for row in rows["sources"]:
        if row["dialect"] not in known:
            yield (
                f"{directory / 'sources.csv'}:{row.line}: dialect is {row['dialect']!r}: "
                f"must be one of {', '.join(known)}, or a dialect of dialects.csv"
            )
    for row in rows["dialects"]:
        if row["field"] in ("owns", "recognised_by") and (row["path"] or row["encoding"] != "text"):
            yield f"{directory / 'dialects.csv'}:{row.line}: field is {row['field']!r}: encoding and path must be empty"
        if row["header"].count("*") and row["field"] != "owns":
            yield f"{directory / 'dialects.csv'}:{row.line}: header is {row['header']!r}: only with field 'owns' may a name end with *"


def _policies(directory: Path, rows: Rows) -> Iterator[str]:
    policies = sorted(row["policy"] for row in rows["retry_policies"])
    for row in rows["routes"]:
        for column in ("retry_policy", "publish_policy"):
            if row[column] not in policies:
                yield (
                    f"{directory / 'routes.csv'}:{row.line}: {column} is {row[column]!r}: "
                    f"must be a policy of retry_policies.csv: {', '.join(policies) or 'it has none'}"
                )


def _error_sets(directory: Path, rows: Rows) -> Iterator[str]:
    sets = {row["error_set"] for row in rows["error_sets"]}
    for row in rows["error_rules"]:
        where = f"{directory / 'error_rules.csv'}:{row.line}: error_class is {row['error_class']!r}"
        if not row["error_class"].startswith("@"):
            continue
        if row["error_class"][1:] not in sets:
            yield f"{where}: must be a set of error_sets.csv: {', '.join(f'@{name}' for name in sorted(sets)) or 'it has none'}"
        if row["message"] or row["code"] or row["header"]:
            yield f"{where}: a set has its own conditions; message, code and header must be empty"
    for row in rows["error_sets"]:
        if not any(row[column] for column in ("error_class", "message", "code", "header")):
            yield f"{directory / 'error_sets.csv'}:{row.line}: has no condition: it would hold for any error"


def _privacies(directory: Path, rows: Rows) -> Iterator[str]:
    privacies = sorted([EVERYTHING, *(row["name"] for row in rows["privacy"])])
    for row in rows["routes"]:
        if row["privacy"] not in privacies:
            allowed = f"{EVERYTHING}, or a name in privacy.csv: {', '.join(privacies)}"
            yield f"{directory / 'routes.csv'}:{row.line}: privacy is {row['privacy']!r}: must be {allowed}"


def _destinations(directory: Path, rows: Rows) -> Iterator[str]:
    """Destinations that a source reads: what is sent there would come back as a report."""
    for name, column in (("routes", "retry_topic"), ("routes", "dead_letter_topic"), ("dead_letter_topics", "dead_letter_topic")):
        for row in rows[name]:
            if "{" in row[column] or row[column] == NO_TOPIC:
                continue
            for source in rows["sources"]:
                if topic_matches(row[column], source["topic"]):
                    yield (
                        f"{directory / name}.csv:{row.line}: {column} is {row[column]!r}: that is read by the source "
                        f"{source['source']!r}; what is sent there would come back as a report"
                    )
