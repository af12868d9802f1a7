"""Reads rows of a table in PostgreSQL as Arrow: without an object of Python for each value, which takes most of the time otherwise."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
import pyarrow as pa
import sqlalchemy as sa
from adbc_driver_postgresql import StatementOptions, dbapi
from psycopg.conninfo import make_conninfo
from sqlalchemy.dialects import postgresql

from orchestration.outbox.engine import LIBPQ_SETTINGS

# About how many bytes of rows are held at once.
_BATCH_BYTES: Final = 4 * 1_024 * 1_024

# The names of values are no part of the statement: without this, `%` would be written twice.
_DIALECT: Final[sa.Dialect] = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]


class ArrowReadError(Exception):
    """The rows can't be read this way. Says no more than the type of the error: its text may quote a value."""


class ArrowReader:
    """At most one connection, which is opened when it is needed. settings: libpq's, of the connection."""

    def __init__(self, settings: str) -> None:
        self._settings = settings
        self._idle: dbapi.Connection | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, engine: sa.Engine) -> ArrowReader | None:
        """With the address of an engine; None if it is no PostgreSQL, or has settings that only its driver knows."""
        if engine.dialect.name != "postgresql" or engine.dialect.driver != "psycopg":
            return None
        given = engine.dialect.create_connect_args(engine.url)[1]
        # of the driver, not of the address
        given.pop("context", None)
        try:
            # Arrow takes all bytes for UTF-8, whatever the database has
            return cls(make_conninfo(**{**LIBPQ_SETTINGS, **given, "client_encoding": "UTF8"}))
        except psycopg.ProgrammingError:
            return None

    @contextmanager
    def batches(self, wanted: sa.Select[Any]) -> Iterator[Iterable[pa.RecordBatch]]:
        """The rows of a query, in batches. Raises ArrowReadError, also for what the caller raises meanwhile."""
        with self._lock:
            connection, self._idle = self._idle, None
        is_read = False
        try:
            if connection is None:
                connection = self._connect()
            with connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(_BATCH_BYTES)})
                cursor.execute(_in_full(wanted))
                left = _Left(cursor.fetch_record_batch())
                yield left
            is_read = left.is_empty
        except ArrowReadError:
            raise
        except Exception as error:
            # Arrow raises what happens after the first rows as it likes: an OSError, for one
            raise ArrowReadError(" ".join(filter(None, (type(error).__name__, getattr(error, "sqlstate", None))))) from None
        finally:
            if connection is not None:
                self._keep(connection, is_read=is_read)

    def _keep(self, connection: dbapi.Connection, *, is_read: bool) -> None:
        """Keeps a connection for the next read, or ends it. is_read: whether all rows were read; else the next read would have to."""
        left: dbapi.Connection | None = connection
        if is_read:
            with self._lock:
                left, self._idle = self._idle, connection
        if left is not None:
            with suppress(dbapi.Error):
                left.close()

    def _connect(self) -> dbapi.Connection:
        connection = dbapi.connect(self._settings, autocommit=True)
        # times in columns without a zone are compared with ours
        with connection.cursor() as cursor:
            cursor.execute("set time zone 'UTC'")
        return connection


class _Left:
    """The batches of a reader; knows whether all were read."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader
        self.is_empty = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._reader
        self.is_empty = True


def _in_full(wanted: sa.Select[Any]) -> str:
    """The statement with its values. Raises ArrowReadError for a value that would be another one on some servers."""
    text = str(wanted.compile(dialect=_DIALECT, compile_kwargs={"literal_binds": True}))
    if "\\" in text:
        raise ArrowReadError("a backslash")
    return text
