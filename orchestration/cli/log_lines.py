"""How log lines look: as text, or as JSON. Times are in UTC, as everywhere; of foreign text there are letters only."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from orchestration.cli.output import as_json, one_line, redacted


class LogLines(logging.Formatter):
    """`2026-03-01T12:00:00.000Z INFO    a message`: one line. Those of a traceback are moved in, so that none looks like a record."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record)} {record.levelname:<7} {one_line(record.getMessage())}"
        more = [self.formatException(record.exc_info)] if record.exc_info else []
        return "\n".join([line, *(f"    {one_line(part)}" for text in more for part in text.splitlines())])

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """The record's time, with its zone."""
        return f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"


class JsonLines(LogLines):
    """One JSON object a line; `tick=3 sent=5` becomes fields of it."""

    def format(self, record: logging.LogRecord) -> str:
        message = one_line(record.getMessage())
        line: dict[str, object] = {"at": self.formatTime(record), "level": record.levelname.lower(), "message": message}
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["traceback"] = redacted(self.formatException(record.exc_info))
        return as_json(line)
