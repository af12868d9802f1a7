"""The connection to the database of an outbox."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format
from sqlalchemy.exc import SQLAlchemyError

from orchestration.outbox.profiles import Outbox
from orchestration.outbox.states import OutboxError
from orchestration.outbox.values import in_words

# How long the database may take to accept a connection, in seconds.
_CONNECT_SECONDS = 5

# How libpq finds out that a server is gone, in seconds and milliseconds: by default, the system does after a quarter of an hour or more.
LIBPQ_SETTINGS: Final = {
    "connect_timeout": _CONNECT_SECONDS, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000,
}  # fmt: skip

# The driver for an address that names only the database.
_DRIVERS: Final = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}

FIRST_MOMENT: Final = datetime.min.replace(tzinfo=UTC)
LAST_MOMENT: Final = datetime.max.replace(tzinfo=UTC)
"""What earlier and later times are read as."""


def engine_of(outbox: Outbox) -> sa.Engine:
    """The engine for the connection of an outbox. Raises OutboxError."""
    address = outbox.address
    if address is None:
        raise OutboxError(
            f"there is no connection {outbox.connection!r}: REDRIVE_CONNECTIONS__{outbox.connection.upper()}, "
            "or [connections] in redrive.toml"
        )
    kind, separator, rest = address.partition("://")
    kind = _DRIVERS.get(kind, kind)
    driver = kind.partition("+")[2]
    settings: dict[str, Any] = {"connect_timeout": _CONNECT_SECONDS} if kind.startswith(("mysql", "mariadb")) else {}
    if driver in ("psycopg", "psycopg2"):
        settings |= LIBPQ_SETTINGS
    try:
        # three at most: for the loop's own thread, the one that reads ahead, and the one that marks.
        # hide_parameters: an error would quote the values of rows
        engine = sa.create_engine(
            f"{kind}{separator}{rest}", pool_size=1, max_overflow=2, pool_pre_ping=True, hide_parameters=True, connect_args=settings
        )
    except (SQLAlchemyError, ImportError, ValueError, TypeError) as error:
        raise OutboxError(f"the connection {outbox.connection!r} can't be used: {in_words(error)}") from None
    if engine.dialect.name == "postgresql":
        # else the server turns our times into its own zone for columns without one, and we read them as UTC
        sa.event.listen(engine, "connect", _use_utc)
    if driver == "psycopg":
        sa.event.listen(engine, "connect", _bound_times)
    return engine


def _use_utc(connection: Any, _: object) -> None:
    # by a cursor, which every driver has
    with closing(connection.cursor()) as cursor:
        cursor.execute("set time zone 'UTC'")
    # otherwise the end of the first transaction takes it back
    connection.commit()


def _bound_times(connection: psycopg.Connection[Any], _: object) -> None:
    # else one row with a time that Python has no value for, such as `infinity`, would keep all rows of the outbox from being read
    for name, zone in (("timestamp", None), ("timestamptz", UTC)):
        connection.adapters.register_loader(name, _bounded(connection, name, zone))


def _bounded(connection: psycopg.Connection[Any], name: str, zone: tzinfo | None) -> type[Loader]:
    """A loader for times; those that Python has no value for are the last or the first that it has."""
    inner = connection.adapters.get_loader(psycopg.adapters.types[name].oid, Format.TEXT)
    assert inner is not None, "the driver knows times"
    make: type[Any] = inner

    class Bounded(Loader):
        def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
            super().__init__(oid, context)
            self._load = make(oid, context).load

        def load(self, data: Buffer) -> Any:
            try:
                return self._load(data)
            except psycopg.DataError:
                text = bytes(data)
                is_past = text.startswith(b"-") or text.endswith(b"BC")
                return (FIRST_MOMENT if is_past else LAST_MOMENT).replace(tzinfo=zone)

    return Bounded
