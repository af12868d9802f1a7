"""Log lines are events: a constant name, and fields for what differs. docs/logs.md lists all of them.

A field may hold foreign text (an error's class, a topic's name) or a secret. It is cleaned here when the line is written, for every handler
and in both forms, text and JSON, which orchestration/log_lines.py defines.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from orchestration.output import LONGEST_LINE, one_line, redacted

Plain: TypeAlias = "str | int | float | bool | list[str]"

# At least this many characters of a field are shown, however long the fields before it are.
_LEAST: Final = 40

# Values that need no quotes. Others are written as in logfmt: in quotes, with a backslash before quotes and backslashes.
_BARE: Final = re.compile(r'[^\s"=\\]+')


def event(log: logging.Logger, level: int, name: str, /, **fields: object) -> None:
    """Logs an event. name: in snake case and the past tense. A field that is None is left out; a time is written in UTC.

    exc_info is not a field: if true, the traceback of the error that is being handled follows.
    """
    if log.isEnabledFor(level):
        exc_info = bool(fields.pop("exc_info", False))
        log.log(level, Event(name, fields), exc_info=exc_info, stacklevel=2)


@dataclass(frozen=True)
class Event:
    """The message of a log record. As text, also for other handlers, it is `name field=value field="a value"`, on one line."""

    name: str
    fields: Mapping[str, object]

    def cleaned(self) -> dict[str, Plain]:
        """The fields without secrets: numbers as they are, everything else as text."""
        return {name: _cleaned(value) for name, value in self.fields.items() if value is not None}

    def __str__(self) -> str:
        parts, room = [self.name], LONGEST_LINE
        for name, value in self.cleaned().items():
            text = _quoted(one_line(_text(value), max(room, _LEAST)))
            parts.append(f"{name}={text}")
            room -= len(text)
        return " ".join(parts)


def _cleaned(value: object) -> Plain:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"
    if isinstance(value, list | tuple | set | frozenset):
        return [redacted(str(item)) for item in value]
    return redacted(str(value))


def _text(value: Plain) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return ",".join(value) if isinstance(value, list) else str(value)


def _quoted(text: str) -> str:
    if _BARE.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
