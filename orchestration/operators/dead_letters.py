"""Dead letters, and what was refused, found and shown: what `redrive dlq` and `redrive waiting` do.

A `Selection` says which ones: from what the command line was told to one condition in SQL over the mart `stranded_messages`. Whoever does
something about them selects them with the same.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table
from rich.text import Text

from orchestration.cli.output import printable
from orchestration.clock import literal, parse_moment
from orchestration.rules.explain import history
from orchestration.settings import Settings
from orchestration.tables.catalog import missing_tables, without_tables
from orchestration.tables.query import Rows, query
from orchestration.tables.rows import as_dicts, collected, iterated
from orchestration.tables.spark import java_exception, schema, session_to_ask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

State = Literal["open", "redriven", "recovered", "discarded", "refused", "all"]

# Functions that call any static method of the JVM: with them a condition could do more than filter.
_REACHES_OUT = ("java_method", "reflect", "try_reflect")

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

# How much of a payload is shown; all of it is written by --payload.
_SHOWN_CHARACTERS = 8_000
_SHOWN_BYTES = 512

_LISTED = (
    *("message_id", "state", "dead_at", "original_topic", "consumer_group", "error_class", "error_kind", "error_message"),
    *("reason", "attempts", "lives", "topic", "partition", "offset", "owner", "note", "ticket", "purged_at"),
)
_EXPORTED = (
    *(*_LISTED, "error_stack", "error_pattern", "fingerprint", "rule", "matched", "life", "first_failed_at", "failed_at"),
    *("original_partition", "original_offset", "original_timestamp", "source", "delivery_id", "request_id", "process_id", "trace_id"),
    *("decision", "runbook", "logs_url", "trace_url", "payload_type", "schema_id", "omitted", "key", "value", "headers"),
)
_EXPORT_ROWS = 1_000


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
            _matches("original_topic", self.topic),
            _matches("error_class", self.error_class, also_after=".$"),
            _matches("consumer_group", self.group),
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


def _matches(column: str, wanted: str | None, also_after: str = "") -> str | None:
    if wanted is None:
        return None
    if wanted.startswith("^"):
        return f"{column} rlike {_literal(wanted)}"
    ends = [f"endswith({column}, {_literal(before + wanted)})" for before in also_after]
    return f"({' or '.join([f'{column} = {_literal(wanted)}', *ends])})"


def _named(message_id: str) -> str:
    """The condition for one message. Its original offset is a part of its id (macro message_id): files are written in the order of
    offsets, and those that can't hold it are skipped. Where there is none in it, there is no offset.
    """
    said = re.search(r"/\d{1,10}/(\d{1,18})(?:~[0-9a-f]{8})?\Z", message_id, re.ASCII)
    return f"message_id = {_literal(message_id)}{f' and original_offset = {int(said[1])}' if said else ''}"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class DeadLetters:
    """The dead letters of an installation, to be asked. Starts Spark where there is none yet."""

    def __init__(self, settings: Settings) -> None:
        if missing := without_tables(settings):
            raise DlqError(missing)
        self._spark: SparkSession = session_to_ask(settings)
        self._schema = schema(settings.project)
        if not self._spark.catalog.tableExists(f"{self._schema}.deliveries"):
            raise DlqError(missing_tables(settings))

    def checked(self, where: str | None) -> str | None:
        """A condition that can do nothing but filter, as it came. Raises DlqError for anything else, and for what can't be parsed."""
        return None if where is None else _checked(self._spark, where)

    def checked_pattern(self, option: str, wanted: str | None) -> str | None:
        """A name, or a regular expression that begins with ^, as it came. Raises DlqError for one that can't be read."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        if wanted is not None and wanted.startswith("^"):
            try:
                # Java's own reading: the tables are asked by it
                self._spark._jvm.java.util.regex.Pattern.compile(wanted)  # type: ignore[union-attr]
            except (Py4JJavaError, PySparkException) as error:
                said = java_exception(error)
                where = f" at character {said.getIndex() + 1}" if said.getIndex() >= 0 else ""
                raise DlqError(f"{option} {wanted!r} is no regular expression: {said.getDescription()}{where}") from None
        return wanted

    def find(self, selection: Selection, limit: int) -> Rows:
        """Dead letters, the latest first."""
        return self._query(f"select {', '.join(_LISTED)} from stranded_messages", selection, "order by dead_at desc, message_id", limit)

    def groups(self, selection: Selection, limit: int) -> Rows:
        """Of the selected dead letters, which died of the same: those with the most open ones first."""
        return self._query(
            """
            select
                fingerprint, count_if(state = 'open') as open, count_if(state in ('open', 'discarded') and decision <> 'refused') as dead,
                count_if(decision <> 'refused') as died, count_if(state = 'refused') as refused,
                min(dead_at) as first_seen, max(dead_at) as last_seen,
                error_class, error_pattern, sort_array(collect_set(original_topic)) as topics,
                sort_array(collect_set(consumer_group)) as consumer_groups,
                max_by(message_id, struct(dead_at, message_id)) as sample_message_id
            from stranded_messages
            """,
            selection,
            "group by fingerprint, error_class, error_pattern order by open + refused desc, died desc, last_seen desc, fingerprint",
            limit,
        )

    def stats(self, now: datetime, topic: str | None, limit: int) -> Rows:
        """By topic: how many died in the present hour, in the last 24 and in the last week, and what is usual; the unusual first."""
        hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        past, this = (literal(moment) for moment in (hour - timedelta(days=7), hour))
        return query(
            self._spark,
            self._schema,
            f"""
            select
                original_topic,
                coalesce(max(case when hour = {this} then died end), 0) as this_hour,
                coalesce(sum(case when hour > {this} - interval 24 hour then died end), 0) as last_24_hours,
                sum(died) as last_7_days,
                max_by(usual, hour) as usual,
                max(hour) as last_hour,
                coalesce(max(case when hour >= {this} - interval 1 hour then is_unusual end), false) as is_unusual,
                transform(
                    sequence(23, 0, -1),
                    h -> coalesce(map_from_entries(collect_list(struct(hour, died)))[{this} - make_interval(0, 0, 0, 0, h)], 0)
                ) as by_hour
            from dead_letter_rate
            where hour > {past} and {_matches("original_topic", self.checked_pattern("--topic", topic)) or "true"}
            group by original_topic
            order by is_unusual desc, this_hour desc, last_24_hours desc, original_topic
            """,
            limit,
        )

    def related(self, message_id: str, limit: int) -> Rows:
        """What may have to do with a dead letter, each with all its relations; nearest in time first. Raises DlqError if it isn't one."""
        found = query(
            self._spark,
            self._schema,
            f"""
            select
                related_id as message_id, sort_array(collect_set(relation)) as relations, any_value(later_ms) as later_ms,
                any_value(related_state) as state, any_value(related_topic) as original_topic, any_value(related_error_class) as error_class
            from related_messages
            where {_named(message_id)}
            group by related_id
            order by size(relations) desc, abs(later_ms), message_id
            """,
            limit,
        )
        if not found.rows:
            # nothing has to do with it, or it is none: that raises
            self.get(message_id)
        return found

    def waiting(self, selection: Selection, limit: int) -> Rows:
        """Messages that will be sent, or whose dead letter will be; the next one first."""
        columns = "message_id, state, next_due, attempts, max_attempts, original_topic, consumer_group, error_class, error_kind, reason"
        where = f"state in ('waiting', 'held', 'dead_letter_pending') and {selection.condition(since_column='last_failed_at')}"
        return query(self._spark, self._schema, f"select {columns} from messages where {where} order by next_due, message_id", limit)

    def get(self, message_id: str) -> dict[str, Any]:
        """A dead letter, or what was refused, with all that is known of it. Raises DlqError, which says what it is if it is neither."""
        rows = self._rows("stranded_messages", message_id)
        if rows:
            return rows[0]
        messages = self._rows("messages", message_id)
        if messages:
            raise DlqError(f"{message_id!r} is no dead letter: its state is {messages[0]['state']}. `redrive explain` tells its life")
        raise DlqError(f"no message is called {message_id!r}: `redrive dlq list` shows what is dead")

    def history_of(self, message_id: str) -> list[dict[str, Any]]:
        """A message's life in order, as `message_history` has it."""
        return history(self._spark, self._schema, message_id)

    def export(self, selection: Selection, to: Path) -> int:
        """Writes the selected dead letters, payloads and all, to a file: .jsonl (bytes in base64) or .parquet. Returns how many.

        The file is there as a whole or not at all. Raises DlqError for a name that says neither.
        """
        write = {".jsonl": _write_jsonl, ".parquet": _write_parquet}.get(to.suffix)
        if write is None:
            raise DlqError(f"--to {to}: the name must end with .jsonl or .parquet")
        if to.exists():
            raise DlqError(f"--to {to}: is there already")
        unfinished = to.with_name(f".{to.name}.unfinished")
        try:
            frame = self._frame(
                f"select {', '.join(_EXPORTED)} from stranded_messages where {selection.condition()} order by dead_at, message_id"
            )
            count = write(frame, unfinished)
            unfinished.replace(to)
        except OSError as error:
            raise DlqError(f"--to {to}: {error.strerror or error}") from error
        finally:
            unfinished.unlink(missing_ok=True)
        return count

    def rows(self, statement: str) -> list[dict[str, Any]]:
        """All rows of a statement of ours, with the tables under their own names. As Arrow: a list may have a million."""
        return as_dicts(self._frame(statement))

    def _rows(self, mart: str, message_id: str) -> list[dict[str, Any]]:
        return [row.asDict() for row in collected(self._frame(f"select * from {mart} where {_named(message_id)}"), 1)]

    def _query(self, select: str, selection: Selection, rest: str, limit: int) -> Rows:
        return query(self._spark, self._schema, f"{select} where {selection.condition()} {rest}", limit)

    def _frame(self, statement: str) -> DataFrame:
        self._spark.sql(f"use {self._schema}")
        return self._spark.sql(statement)


def _checked(spark: SparkSession, where: str) -> str:
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


def _write_jsonl(frame: DataFrame, to: Path) -> int:
    written = 0
    with to.open("w", encoding="utf-8") as file:
        for row in iterated(frame):
            line = {name: _exported(value) for name, value in row.asDict(recursive=True).items()}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            written += 1
    return written


def _exported(value: Any) -> Any:
    """Bytes always in base64: whether they happen to be text would change the shape from row to row."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds")
    if isinstance(value, dict):
        return {name: _exported(inner) for name, inner in value.items()}
    return [_exported(inner) for inner in value] if isinstance(value, list) else value


def _write_parquet(frame: DataFrame, to: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import to_arrow_schema

    columns = pa.schema(
        (field.name, pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(field.type) else field.type)
        for field in to_arrow_schema(frame.schema)
    )
    count = 0
    with pq.ParquetWriter(to, columns) as writer:
        for rows in _batches(row.asDict(recursive=True) for row in iterated(frame)):
            count += len(rows)
            writer.write_table(pa.Table.from_pylist(rows, columns))
    return count


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _EXPORT_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


# ---------- shown to people


def payload_lines(value: bytes | None, payload_type: str, schema_id: int | None) -> Iterator[str]:
    """A payload for people: JSON with its lines broken, text as it stands, other bytes in hexadecimal; not more than fits a few screens."""
    if value is None or not value:
        return
    body = value[5:] if schema_id is not None else value
    if payload_type not in ("json", "text"):
        yield from _hexadecimal(value)
        return
    text = body.decode(errors="replace")
    shown = _pretty(text) if payload_type == "json" else text
    yield from (printable(line) for line in shown[:_SHOWN_CHARACTERS].splitlines())
    if len(shown) > _SHOWN_CHARACTERS:
        yield f"... {len(shown) - _SHOWN_CHARACTERS:,} more characters: --payload FILE writes all of it"


def _hexadecimal(value: bytes) -> Iterator[str]:
    for start in range(0, min(len(value), _SHOWN_BYTES), 16):
        part = value[start : start + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{start:04x}  {part.hex(' '):<47}  {letters}"
    if len(value) > _SHOWN_BYTES:
        yield f"... {len(value) - _SHOWN_BYTES:,} more bytes: --payload FILE writes all of it"


class _NotAsItStandsError(ValueError):
    """Python would write this JSON differently."""


def _pretty(text: str) -> str:
    """JSON with its lines broken; as it stands where Python would lose something: a name that stands twice, a number's digits."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise _NotAsItStandsError
        return dict(pairs)

    def exact(number: str) -> float:
        if repr(float(number)) != number:
            raise _NotAsItStandsError
        return float(number)

    try:
        return json.dumps(json.loads(text, parse_float=exact, object_pairs_hook=once), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def header_lines(headers: Sequence[Mapping[str, Any]] | None) -> Iterator[tuple[str, str]]:
    """Headers for people, in their order: names, and values as text, or in hexadecimal if they aren't."""
    for header in headers or ():
        value = header["value"]
        if value is None:
            yield printable(header["key"]), "null"
            continue
        text = bytes(value).decode(errors="replace")
        is_text = "�" not in text and text.isprintable()
        yield printable(header["key"]), text[:500] if is_text else f"0x{bytes(value)[:64].hex()}"


def facts(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is known of a dead letter besides its payload, in pairs of a word and what there is to say; what isn't known is left out."""
    lies = None if row["topic"] is None else f"{row['topic']}/{row['partition']}/{row['offset']}"
    parked = "in the tables alone: its route has no dead letter topic" if row["decision"] == "parked" else None
    came = f"{row['original_topic']}/{row['original_partition']}/{row['original_offset']}"
    stated = "" if row["original_timestamp"] is None else f", written {moment(row['original_timestamp'])}"
    without = "" if row["omitted"] is None else f", without its {row['omitted'].replace('_', ' ').replace('+', ' and ')}"
    attempts = _counted(row["attempts"], "failed attempt")
    type_ = row["payload_type"] + ("" if row["schema_id"] is None else f", schema {row['schema_id']}")
    said = {
        "state": f"{row['state']}, life {row['life']} of {row['lives']}",
        "refused"
        if row["decision"] == "refused"
        else "died": f"{moment(row['dead_at'])}, after {attempts}, the first at {moment(row['first_failed_at'])}",
        "lies at": parked or (lies and lies + without),
        # of what could not be placed, nobody knows
        "came from": None if came == lies else came + stated,
        "purged": row["purged_at"] and f"{moment(row['purged_at'])}: key, value, headers, message and stack",
        "note": row["note"],
        "ticket": row["ticket"],
        "group": row["consumer_group"],
        "reason": row["reason"],
        "error": row["error_class"],
        "message": row["error_message"],
        "rule": row["rule"] and f"{row['error_kind']}: {row['rule']}",
        "fingerprint": f"{row['fingerprint']}: {row['error_pattern']}",
        "request": row["request_id"],
        "process": row["process_id"],
        "trace": row["trace_id"],
        "owner": row["owner"],
        "runbook": row["runbook"],
        "logs": row["logs_url"],
        "traces": row["trace_url"],
        "key": None if row["key"] is None else _key(bytes(row["key"])),
        "payload": type_ + ("" if row["value_bytes"] is None else f", {row['value_bytes']:,} bytes"),
    }
    return ((word, printable(text)) for word, text in said.items() if text)


def _counted(number: int | None, what: str) -> str:
    return f"{number or 0:,} {what}{'' if number == 1 else 's'}"


def _key(key: bytes) -> str:
    text = key.decode(errors="replace")
    return text if text.isprintable() and "�" not in text else f"0x{key.hex()}"


def moment(at: datetime | None) -> str:
    """A time for people, in UTC."""
    return "-" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def dead_letter_table(rows: Rows) -> Table:
    """A line for each: ids are shown whole, as they are what one goes on with; the rest is cut to what fits."""
    table = _table("message", ("died, UTC", 14), ("state", 9), "error")
    for row in _dicts(rows):
        what = f"{_class(row['error_class'])}: {row['error_message']}" if row["error_message"] else _class(row["error_class"])
        table.add_row(_whole(row["message_id"]), moment(row["dead_at"])[5:], row["state"], _cut(what))
    return table


def group_table(rows: Rows) -> Table:
    """A line for each group. What was refused has a column only where something was."""
    counted = ("open", "dead", "died", *(("refused",) if any(row["refused"] for row in _dicts(rows)) else ()))
    table = _table(("group", 12), *((name, -7) for name in counted), ("last, UTC", 11), "error", "topics")
    for row in _dicts(rows):
        numbers = (*(str(row[name]) for name in counted), moment(row["last_seen"])[5:-3])
        what = f"{_class(row['error_class'])}: {row['error_pattern']}"
        table.add_row(row["fingerprint"], *numbers, _cut(what), _cut(", ".join(row["topics"])))
    return table


def stats_table(rows: Rows) -> Table:
    """A line for each topic; an unusual one is marked."""
    table = _table("topic", ("this hour", -9), ("usual", -6), ("24 h", -7), ("7 days", -8), ("24 h by hour", 24), "")
    for row in _dicts(rows):
        counts = (str(row["this_hour"]), f"{row['usual'] or 0:g}", str(row["last_24_hours"]), str(row["last_7_days"]))
        table.add_row(_whole(row["original_topic"]), *counts, bars(row["by_hour"]), "[red]unusual[/red]" if row["is_unusual"] else "")
    return table


def related_table(rows: Rows) -> Table:
    """A line for each related message."""
    table = _table("message", ("same", 19), ("died", -13), ("state", 9), "error")
    for row in _dicts(rows):
        told = (_whole(", ".join(row["relations"])), _apart(row["later_ms"]), row["state"])
        table.add_row(_whole(row["message_id"]), *told, _cut(_class(row["error_class"])))
    return table


def waiting_table(rows: Rows) -> Table:
    """A line for each waiting message."""
    table = _table("message", ("due, UTC", 14), ("for", 11), ("failed", 8), "error")
    for row in _dicts(rows):
        bound = "" if row["max_attempts"] is None else f" of {row['max_attempts']}"
        purpose = {"waiting": "retry", "held": "retry, held"}.get(row["state"], "dead letter")
        told = (moment(row["next_due"])[5:], purpose, f"{row['attempts']}{bound}")
        table.add_row(_whole(row["message_id"]), *told, _cut(_class(row["error_class"])))
    return table


def _table(*columns: str | tuple[str, int]) -> Table:
    """A table whose columns have a width of their own, negative where numbers stand, or share what is left."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        name, width = (column, 0) if isinstance(column, str) else column
        if width:
            table.add_column(name, width=abs(width), no_wrap=name != "same", justify="right" if width < 0 else "left")
        else:
            table.add_column(name)
    return table


def _whole(text: str) -> Text:
    """What must not be shortened is folded."""
    return Text(_line(text), overflow="fold")


def _cut(text: str) -> Text:
    return Text(_line(text), no_wrap=True, overflow="ellipsis")


def _line(text: str) -> str:
    return printable(text).replace("\n", " ")


def _dicts(rows: Rows) -> Iterator[dict[str, Any]]:
    return (dict(zip(rows.columns, row, strict=True)) for row in rows.rows)


def _class(name: str | None) -> str:
    """A class without its package."""
    return (name or "(no class)").rpartition(".")[2]


def _apart(later_ms: int) -> str:
    seconds = abs(later_ms) / 1000
    size, unit = next((size, unit) for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")) if seconds >= size or unit == "s")
    return f"{seconds / size:.1f} {unit} {'later' if later_ms >= 0 else 'before'}"


_BARS = " ▁▂▃▄▅▆▇█"


def bars(counts: Sequence[int]) -> str:
    """Counts as a line of bars, the highest full; any that isn't zero shows."""
    highest = max(counts, default=0) or 1
    return "".join(_BARS[-(-count * 8 // highest)] for count in counts)
