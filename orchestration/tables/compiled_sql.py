"""SQL that dbt has compiled, kept for other processes: importing dbt and parsing the project takes a command longer than its question.

Only what is the same for the same project, variables and environment: SQL whose macros ask the tables is compiled each time.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from orchestration.files import cache_directory, remove_unused, write_atomically


@dataclass(frozen=True)
class CompiledSql:
    """The SQL that one piece of Jinja becomes."""

    file: Path

    def read(self) -> str | None:
        """The SQL; None if it is not kept."""
        with suppress(OSError, UnicodeDecodeError):
            sql = self.file.read_text(encoding="utf-8")
            os.utime(self.file)
            return sql
        return None

    def keep(self, sql: str) -> None:
        """Keeps the SQL, if the directory can be used."""
        with suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.file, sql)
            remove_unused(self.file.parent, "*.sql")


def compiled_sql(*facts: object) -> CompiledSql | None:
    """What is kept of a piece of Jinja. facts: all that its SQL depends on, besides dbt. None if there is no place for files."""
    with suppress(RuntimeError):
        told = repr((version("dbt-core"), version("dbt-spark"), facts))
        return CompiledSql(cache_directory() / "compiled" / f"{hashlib.sha256(told.encode()).hexdigest()[:32]}.sql")
    return None
