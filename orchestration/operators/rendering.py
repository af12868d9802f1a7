"""Dead letters and waiting messages as people read them: tables, facts, payloads, headers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from orchestration.output import printable
from orchestration.tables.query import Rows

# How much of a payload is shown; --payload writes all of it.
_SHOWN_CHARACTERS = 8_000
_SHOWN_BYTES = 512

_BARS = " ▁▂▃▄▅▆▇█"


def payload_lines(value: bytes | None, payload_type: str, schema_id: int | None) -> Iterator[str]:
    """A payload for people: JSON indented, text unchanged, other bytes in hexadecimal; cut after a few screens."""
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
    """JSON, indented; unchanged if Python would lose something, such as a duplicate name or digits of a number."""

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
    """Headers for people, in their order: names, and values as text (at most 500 characters) or in hexadecimal (at most 64 bytes)."""
    for header in headers or ():
        value = header["value"]
        if value is None:
            yield printable(header["key"]), "null"
            continue
        text = bytes(value).decode(errors="replace")
        is_text = "�" not in text and text.isprintable()
        shown, whole = (text[:500], len(text) <= 500) if is_text else (f"0x{bytes(value)[:64].hex()}", len(value) <= 64)
        yield printable(header["key"]), shown if whole else f"{shown}…"


def facts(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is known of a dead letter besides its payload, as pairs of a label and a text; what isn't known is left out."""
    lies = None if row["topic"] is None else f"{row['topic']}/{row['partition']}/{row['offset']}"
    parked = "in the tables alone: its route has no dead letter topic" if row["decision"] == "parked" else None
    place = "" if row["original_offset"] is None else f"/{row['original_partition']}/{row['original_offset']}"
    came = f"{row['original_topic']}{place}"
    stated = "" if row["original_timestamp"] is None else f", written {moment(row['original_timestamp'])}"
    without = "" if row["omitted"] is None else f", without its {row['omitted'].replace('_', ' ').replace('+', ' and ')}"
    attempts = _counted(row["attempts"], "failed attempt")
    type_ = row["payload_type"] + ("" if row["schema_id"] is None else f", schema {row['schema_id']}")
    shown = {
        "state": f"{row['state']}, life cycle {row['life_cycle']} of {row['life_cycles']}",
        "refused"
        if row["decision"] == "refused"
        else "died": f"{moment(row['dead_at'])}, after {attempts}, the first at {moment(row['first_failed_at'])}",
        "lies at": parked or (lies and lies + without),
        # an adopted dead letter that doesn't say where it came from has its own coordinates here
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
        "payload": f"by reference: in the original record, {came}, and read when it is sent"
        if row["by_reference"]
        else type_ + ("" if row["value_bytes"] is None else f", {row['value_bytes']:,} bytes"),
    }
    return ((word, printable(text)) for word, text in shown.items() if text)


def _counted(number: int | None, what: str) -> str:
    return f"{number or 0:,} {what}{'' if number == 1 else 's'}"


def _key(key: bytes) -> str:
    text = key.decode(errors="replace")
    return text if text.isprintable() and "�" not in text else f"0x{key.hex()}"


def moment(at: datetime | None) -> str:
    """A time for people, in UTC."""
    return "-" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def dead_letter_table(rows: Rows) -> Table:
    """A line for each dead letter. Ids are shown whole, as further commands need them; other columns are cut to fit."""
    table = _table("message", ("died, UTC", 14), ("state", 9), "error")
    for row in _dicts(rows):
        what = f"{_class(row['error_class'])}: {row['error_message']}" if row["error_message"] else _class(row["error_class"])
        table.add_row(_whole(row["message_id"]), moment(row["dead_at"])[5:], row["state"], _cut(what))
    return table


def group_table(rows: Rows) -> Table:
    """A line for each group. There is a column for refused messages only if there are any."""
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
        cells = (_whole(", ".join(row["relations"])), _apart(row["later_ms"]), row["state"])
        table.add_row(_whole(row["message_id"]), *cells, _cut(_class(row["error_class"])))
    return table


def waiting_table(rows: Rows) -> Table:
    """A line for each waiting message."""
    table = _table("message", ("due, UTC", 14), ("for", 11), ("failed", 8), "error")
    for row in _dicts(rows):
        bound = "" if row["max_attempts"] is None else f" of {row['max_attempts']}"
        purpose = {"waiting": "retry", "held": "retry, held"}.get(row["state"], "dead letter")
        cells = (moment(row["next_due"])[5:], purpose, f"{row['attempts']}{bound}")
        table.add_row(_whole(row["message_id"]), *cells, _cut(_class(row["error_class"])))
    return table


def sequence_table(rows: Rows) -> Table:
    """A line for each sequence."""
    table = _table("sequence", ("state", 9), ("held since, UTC", 15), ("follow", -6), ("sent", -6), ("dead", -6))
    for row in _dicts(rows):
        numbers = (str(row[name]) for name in ("following", "sent", "dead"))
        table.add_row(_whole(row["sequence_key"]), row["state"], moment(row["held_since"])[5:], *numbers)
    return table


def member_table(rows: Rows) -> Table:
    """A line for each message of a sequence."""
    table = _table("message", ("state", 19), ("due, UTC", 14), ("failed", -6), "error")
    for row in _dicts(rows):
        what = "" if row["state"] == "following" else _cut(_class(row["error_class"]))
        table.add_row(_whole(row["message_id"]), row["state"], moment(row["next_due"])[5:], str(row["attempts"]), what)
    return table


def _table(*columns: str | tuple[str, int]) -> Table:
    """A table. A column has a given width, negative for numbers (aligned right), or shares the rest of the line."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        name, width = (column, 0) if isinstance(column, str) else column
        if width:
            table.add_column(name, width=abs(width), no_wrap=name != "same", justify="right" if width < 0 else "left")
        else:
            table.add_column(name)
    return table


def _whole(text: str) -> Text:
    """Text that is folded if it doesn't fit, never cut."""
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


def bars(counts: Sequence[int]) -> str:
    """Counts as a line of bars, the highest full; any that isn't zero shows."""
    highest = max(counts, default=0) or 1
    return "".join(_BARS[-(-count * 8 // highest)] for count in counts)
