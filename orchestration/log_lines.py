"""The forms of log lines: text, or JSON. Times are in UTC. Foreign text keeps printable characters only."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from orchestration.logs import Event
from orchestration.output import as_json, one_line, redacted


class LogLines(logging.Formatter):
    """`2026-03-01T12:00:00.000Z WARNING destination_paused topic=orders`, on one line. A traceback is indented.

    Without the indentation, a line of a traceback could look like a record. A library's message takes the place of the event.
    """

    def format(self, record: logging.LogRecord) -> str:
        # an event is cleaned and cut field by field already; one_line would cut it in the middle of a field
        text = str(record.msg) if isinstance(record.msg, Event) else one_line(record.getMessage())
        line = f"{self.formatTime(record)} {record.levelname:<7} {text}"
        more = [self.formatException(record.exc_info)] if record.exc_info else []
        return "\n".join([line, *(f"    {one_line(part)}" for text in more for part in text.splitlines())])

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """The record's time, with its zone."""
        return f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"


class JsonLines(LogLines):
    """One JSON object a line: `at`, `level`, `event` and its fields; for a library's message, `message`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {"at": self.formatTime(record), "level": record.levelname.lower()}
        if isinstance(record.msg, Event):
            line |= {"event": record.msg.name, **record.msg.cleaned()}
        else:
            line["message"] = one_line(record.getMessage())
        if record.exc_info:
            line["traceback"] = redacted(self.formatException(record.exc_info))
        return as_json(line)
