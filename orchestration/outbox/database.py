"""Reads the pending rows of an outbox table, and writes back what became of them, with SQLAlchemy: the same statements for every database.

Every error of a database is raised as OutboxError, whose text has neither values of rows nor the address.

Longer than other modules, as all statements for such a table are here.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import SQLAlchemyError

from orchestration.logs import event
from orchestration.outbox.arrow_reader import ArrowReader, ArrowReadError
from orchestration.outbox.engine import FIRST_MOMENT, LAST_MOMENT, engine_of
from orchestration.outbox.profiles import STATUSES, Outbox
from orchestration.outbox.source_columns import FIELDS_READ, columns_of_batch, columns_of_rows, plain_columns, source_type
from orchestration.outbox.states import Lag, OutboxError, Page, Place, RowState
from orchestration.outbox.taken_rows import TAKEN, sizes_of, taken_rows
from orchestration.outbox.values import id_values, in_words, moment_of

log = logging.getLogger(__name__)

T = TypeVar("T")

# How many ids one statement names.
_IDS_AT_ONCE = 1_000

# What one call writes back.
_STATES_AT_ONCE = 5_000

_KEPT = "can't be updated or deleted: a trigger or row security of the database keeps them as they are"

# A row whose next attempt is at this time, or later, is never tried.
_NEVER = datetime(9000, 1, 1, tzinfo=UTC)

# How many rows of a result the driver fetches at once.
_FETCHED = 1_000


class OutboxTable:
    """One outbox table."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox

    # ---------- what is read

    def read(
        self,
        limit: int,
        without: Collection[str] = (),
        *,
        adopts: bool = False,
        most_bytes: int | None = None,
        after: Place | None = None,
    ) -> Page:
        """The first pending rows, in the order of their ids (of their creation, where ids are no numbers), as TAKEN.

        without: ids of rows that were taken already. adopts: rows that another relay left as failed are read, too. most_bytes: ends after
        the row with which values and headers are larger. after: only rows whose place comes after this one; then those of `without` count
        as rows of the page, so that of millions of them each page skips some. Raises OutboxError.
        """
        columns = self._columns
        chosen = {**{f"field {name}": self._read(columns[name]) for name in FIELDS_READ if name in columns}, **self._extra}
        types = {name: source_type(name, is_json=self._is_json and name == "field value") for name in chosen}
        limits = (limit, limit + len(without) if after is None else limit, most_bytes)
        wanted = sa.select().where(*self._is_pending(adopts)).order_by(*self._order).limit(limits[1])
        if after is not None:
            wanted = wanted.where(sa.tuple_(*self._order) > sa.tuple_(*after) if len(after) > 1 else self._order[0] > after[0])
        if self._arrow is not None and (plain := plain_columns(chosen)) is not None:
            try:
                with self._arrow.batches(wanted.add_columns(*plain)) as batches:
                    return self._page((self._taken_of_batch(types, batch) for batch in batches), without, *limits)
            except ArrowReadError as error:
                # the driver tells what is wrong, and with which row
                event(log, logging.DEBUG, "outbox_not_read_as_arrow", outbox=self.outbox.name, reason=str(error))
        with self._connected() as connection:
            rows = connection.execute(
                wanted.add_columns(*(column.label(name) for name, column in chosen.items())), execution_options={"yield_per": _FETCHED}
            )
            return self._page((self._taken_of_rows(types, part) for part in rows.partitions()), without, *limits)

    def _page(self, parts: Iterable[pa.RecordBatch], without: Collection[str], limit: int, asked: int, most_bytes: int | None) -> Page:
        """As many of the rows (TAKEN) as a page may have. asked: how many were asked for."""
        taken: list[pa.RecordBatch] = []
        last: pa.RecordBatch | None = None
        rows = size = read = 0
        for part in parts:
            # not by Arrow, which would hash all of `without` for each part
            new = part.filter(pa.array([one not in without for one in part.column("row_id").to_pylist()])) if without else part
            read += part.num_rows
            if not new.num_rows:
                last = part
                continue
            if rows == limit or (most_bytes is not None and size > most_bytes):
                break
            sizes = np.cumsum(sizes_of(new))
            fits = min(new.num_rows, limit - rows)
            if most_bytes is not None:
                fits = min(fits, int(np.searchsorted(sizes, most_bytes - size, "right")) + 1)
            taken.append(new.slice(0, fits))
            rows, size = rows + fits, size + int(sizes[fits - 1])
            if fits < new.num_rows:
                last = taken[-1]
                break
            last = part
        else:
            return Page(pa.Table.from_batches(taken, TAKEN), read < asked, self._place(last))
        return Page(pa.Table.from_batches(taken, TAKEN), False, self._place(last))

    def _taken_of_batch(self, types: Mapping[str, pa.DataType], batch: pa.RecordBatch) -> pa.RecordBatch:
        return taken_rows(self.outbox, columns_of_batch(types, batch), is_json=self._is_json)

    def _taken_of_rows(self, types: Mapping[str, pa.DataType], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        """Rows that the driver has read. Raises OutboxError, which names the row and quotes no value of it."""
        try:
            return taken_rows(self.outbox, columns_of_rows(types, rows), is_json=self._is_json)
        except Exception as error:
            if len(rows) == 1:
                row = rows[0][[*types].index("field id")]
                raise OutboxError(f"the row {row} can't be read: {type(error).__name__}") from error
        return pa.Table.from_batches([self._taken_of_rows(types, [row]) for row in rows]).combine_chunks().to_batches()[0]

    def _place(self, rows: pa.RecordBatch | None) -> Place | None:
        """The values by which the last of rows (TAKEN) is in order; None: there is none, or it isn't certain which rows come after it."""
        if rows is None or not self._places_are_exact:
            return None
        (row,) = rows.slice(rows.num_rows - 1).to_pylist()
        (row_id,) = id_values(self._columns["id"], [row["row_id"]])
        if self._order_fields == ("id",):
            return (row_id,)
        created = row["created_at"]
        if created in (FIRST_MOMENT, LAST_MOMENT):
            # earlier or later ones are read as these
            return None
        return (created if getattr(self._columns["created_at"].type, "timezone", False) else created.replace(tzinfo=None), row_id)

    @property
    def _places_are_exact(self) -> bool:
        """Whether the place of a row, as it is read, compares with others as the database orders them."""
        if not isinstance(self._columns["id"].type, sa.Integer | sa.Uuid | sa.String):
            return False
        if self._order_fields == ("id",):
            return True
        created = self._columns["created_at"]
        return (
            isinstance(created.type, sa.DateTime)
            and not created.nullable
            and self._engine.dialect.name in ("postgresql", "mysql", "mariadb")
        )

    def _is_pending(self, adopts: bool = False) -> Iterator[sa.ColumnElement[bool]]:
        """The conditions of pending rows; adopts: and of those that another relay left as failed."""
        columns = self._columns
        if "status" in columns:
            yield columns["status"].in_([self._statuses[name] for name in ("pending", "failed")[: 1 + adopts]])
        if "next_retry_at" in columns:
            # `infinity` and the like: its owner has parked the row
            yield sa.or_(columns["next_retry_at"].is_(None), columns["next_retry_at"] < _NEVER)

    @property
    def has_status(self) -> bool:
        """Whether the table has a status: without it, a row is pending as long as it is there. Raises OutboxError."""
        return "status" in self._columns

    def lag(self, without: Collection[str] = ()) -> Lag:
        """How far behind the outbox is. without: ids of rows that only look pending. Raises OutboxError."""
        columns = self._columns
        created = columns.get("created_at")
        asked = [sa.func.count().label("pending")]
        if created is not None:
            asked.append(sa.func.min(created).label("oldest"))
        wanted = sa.select(*asked).select_from(self._table).where(*self._is_pending())
        if without:
            wanted = wanted.where(sa.not_(self._is_one_of([*without])))
        with self._connected() as connection:
            row = connection.execute(wanted).mappings().one()
        oldest = moment_of(row.get("oldest"))
        age = 0.0 if oldest is None else max(0.0, (datetime.now(UTC) - oldest).total_seconds())
        return Lag(int(row["pending"]), None if created is None else age)

    def problems(self) -> tuple[list[str], list[str]]:
        """What keeps the outbox from being read and written back, and what makes it slow, in words.

        Raises OutboxError if the database can't be asked at all.
        """
        found = []
        with self._connected() as connection, connection.begin() as transaction:
            # of no row: the database checks the rights all the same
            never = sa.and_(self._columns["id"].is_(None), sa.false())
            statements: list[Any] = [sa.select(self._columns["id"]).where(never)]
            if "status" in self._columns:
                statements.append(self._update({"status": self._statuses["done"]}).where(never))
            if self.outbox.write_back == "delete":
                statements.append(sa.delete(self._table).where(never))
            for statement in statements:
                nested = connection.begin_nested()
                try:
                    connection.execute(statement)
                    nested.commit()
                except SQLAlchemyError as error:
                    nested.rollback()
                    found.append(in_words(error))
            transaction.rollback()
        if self.outbox.purge_after is not None and self._keeps_from_purging is not None:
            found.append(self._keeps_from_purging)
        slow = [] if self._has_index else ["no index begins with the status: each look for pending rows reads the whole table"]
        return found, slow

    # ---------- what is written back

    @staticmethod
    def parts(states: Sequence[RowState]) -> Iterator[Sequence[RowState]]:
        """States in parts that one call of `write` can write back within seconds."""
        return _slices(states, _STATES_AT_ONCE)

    def write(self, states: Sequence[RowState], now: datetime) -> int:
        """Writes states back, in one transaction; returns how many of these rows are gone. May be repeated. Raises OutboxError."""
        columns, statuses = self._columns, self._statuses
        by_status: dict[str, list[RowState]] = {name: [] for name in STATUSES}
        for state in states:
            by_status[state.status].append(state)
        found = 0
        with self._connected() as connection, connection.begin():
            if "status" in columns:
                # published meanwhile: by what a `dbt run` has decided, or by the loop that has taken over
                new = {"status": statuses["processing"], "claimed_at": now}
                is_done = columns["status"] == statuses["done"]
                marked = {name: sa.case((is_done, columns[name]), else_=value) for name, value in new.items() if name in columns}
                for ids in _chunks(by_status["processing"]):
                    found += self._execute(connection, self._update(marked).where(self._is_one_of(ids)))
            else:
                found += len(by_status["processing"])
            found += self._write_done(connection, [state.row_id for state in by_status["done"]], now)
            failed = [*by_status["failed"], *by_status["dead"]]
            if "status" in columns:
                found += self._write_failed(connection, failed)
            else:
                found += len(failed)
        return len(states) - found

    def mark(self, ids: Sequence[str], now: datetime) -> int:
        """Writes back that rows are done, in several transactions; returns how many are gone. May be repeated. Raises OutboxError."""
        found = 0
        for part in _slices(ids, _STATES_AT_ONCE):
            with self._connected() as connection, connection.begin():
                found += self._write_done(connection, part, now)
        return len(ids) - found

    def _write_done(self, connection: sa.Connection, ids: Sequence[str], now: datetime) -> int:
        """Returns how many of these rows there are. Raises OutboxError if some stay as they are: they would be published again."""
        done = self._update({"status": self._statuses.get("done"), "processed_at": now})
        statement = sa.delete(self._table) if self.outbox.write_back == "delete" else done
        found = 0
        for part in _slices(ids, _IDS_AT_ONCE):
            written = self._execute(connection, statement.where(self._is_one_of(part)))
            if written < len(part) and (kept := self._count(connection, self._not_done(part))):
                raise OutboxError(f"{kept} rows of {self.outbox.table} were published and {_KEPT}")
            found += written
        return found

    def _not_done(self, ids: Sequence[str]) -> sa.ColumnElement[bool]:
        among = self._is_one_of(ids)
        return sa.and_(among, self._columns["status"] != self._statuses["done"]) if "status" in self._columns else among

    def _count(self, connection: sa.Connection, condition: sa.ColumnElement[bool]) -> int:
        return int(connection.execute(sa.select(sa.func.count()).select_from(self._table).where(condition)).scalar_one())

    def _write_failed(self, connection: sa.Connection, states: Sequence[RowState]) -> int:
        """Writes states that differ from row to row; returns how many of these rows there are."""
        by_columns: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        ids = id_values(self._columns["id"], (state.row_id for state in states))
        for row_id, state in zip(ids, states, strict=True):
            values = self._values(state)
            row = {f"new_{name}": value for name, value in values.items()} | {"row": row_id}
            by_columns.setdefault((*values,), []).append(row)
        for names, rows in by_columns.items():
            update = self._update({name: sa.bindparam(f"new_{name}") for name in names}).where(self._columns["id"] == sa.bindparam("row"))
            # redriven and published before Kafka took its dead letter
            update = update.where(self._columns["status"] != self._statuses["done"])
            connection.execute(update, rows)
        # not by the updates: not every driver counts the rows of many statements
        return sum(self._count(connection, self._is_one_of(ids)) for ids in _chunks(states))

    def purge(self, before: datetime) -> Iterator[int]:
        """Deletes done rows that were processed before a moment, a thousand at a time; yields how many. Raises OutboxError."""
        columns = self._columns
        if (wrong := self._keeps_from_purging) is not None:
            raise OutboxError(wrong)
        is_old = sa.and_(columns["status"] == self._statuses["done"], columns["processed_at"] < before)
        while True:
            with self._connected() as connection, connection.begin():
                ids = [*connection.execute(sa.select(columns["id"]).where(is_old).limit(_IDS_AT_ONCE)).scalars()]
                # the condition once more: its owner may have made it pending again
                same = sa.and_(columns["id"].in_(ids), is_old)
                deleted = self._execute(connection, sa.delete(self._table).where(same)) if ids else 0
                is_kept = bool(ids) and not deleted and self._count(connection, same) > 0
            yield deleted
            if is_kept:
                # the next page would be the same one
                raise OutboxError(f"old rows of {self.outbox.table} {_KEPT}")
            if len(ids) < _IDS_AT_ONCE:
                return

    @property
    def _keeps_from_purging(self) -> str | None:
        missing = [name for name in ("status", "processed_at") if name not in self._columns]
        return f"the table {self.outbox.table} can't be purged without {' and '.join(missing)}" if missing else None

    def _values(self, state: RowState) -> dict[str, Any]:
        values: dict[str, Any] = {
            "status": self._statuses[state.status],
            "next_retry_at": state.next_retry_at,
            "claimed_at": None,
            "attempts": state.attempts,
            "last_error": self._cut(state.last_error),
        }
        return {name: value for name, value in values.items() if value is not None or name in ("next_retry_at", "claimed_at")}

    def _cut(self, text: str | None) -> str | None:
        """A text as long as its column takes."""
        length = getattr(self._columns["last_error"].type, "length", None) if "last_error" in self._columns else None
        return text if text is None or length is None else text[:length]

    def _update(self, values: Mapping[str, Any]) -> sa.Update:
        columns = self._columns
        return sa.update(self._table).values({columns[name].name: value for name, value in values.items() if name in columns})

    def _is_one_of(self, ids: Sequence[str]) -> sa.ColumnElement[bool]:
        column = self._columns["id"]
        values = id_values(column, ids)
        if self._engine.dialect.name == "postgresql" and not isinstance(column.type, sa.types.NullType):
            return column == sa.any_(sa.bindparam(None, values, type_=ARRAY(column.type)))  # one parameter, not a thousand
        return column.in_(values)

    @staticmethod
    def _execute(connection: sa.Connection, statement: sa.Update | sa.Delete) -> int:
        return connection.execute(statement).rowcount

    # ---------- the table

    @cached_property
    def _engine(self) -> sa.Engine:
        return engine_of(self.outbox)

    @cached_property
    def _arrow(self) -> ArrowReader | None:
        return ArrowReader.of(self._engine)

    @cached_property
    def _table(self) -> sa.Table:
        schema, _, name = self.outbox.table.rpartition(".")
        try:
            return sa.Table(name, sa.MetaData(), schema=schema or None, autoload_with=self._engine, resolve_fks=False)
        except sa.exc.NoSuchTableError:
            raise OutboxError(f"there is no table {self.outbox.table}, or this user may not see it") from None
        except Exception as error:
            # also an error of the driver itself, while it connects
            raise OutboxError(in_words(error)) from None

    @cached_property
    def _columns(self) -> dict[str, sa.Column[Any]]:
        """The columns of the table by field. Raises OutboxError if it lacks one that the seed names, or that every outbox needs."""
        table, profile = self._table, self.outbox.profile
        needed = {"id", "value", *(() if self.outbox.topic_template else ("topic",))}
        found: dict[str, sa.Column[Any]] = {}
        for name, column in profile.columns.items():
            if column in table.columns:
                found[name] = table.columns[column]
            elif name in needed:
                raise OutboxError(
                    f"the table {self.outbox.table} has no column {column!r} ({name}); it has {', '.join(table.columns.keys())}"
                )
        if missing := [name for name in needed if name not in found]:
            raise OutboxError(f"the seed outboxes names no column for {', '.join(missing)} of the table {self.outbox.table}")
        if missing := [name for name in self.outbox.columns_of_topic if name not in table.columns]:
            raise OutboxError(
                f"the topic {self.outbox.topic_template!r} names columns that the table {self.outbox.table} lacks: {', '.join(missing)}"
            )
        if isinstance(found["id"].type, sa.LargeBinary):
            raise OutboxError(
                f"the ids of the table {self.outbox.table} are bytes ({found['id'].type}): they must be numbers, texts or UUIDs"
            )
        if "status" not in found and self.outbox.write_back != "delete":
            # a row that is only marked would look pending again, and be published in each tick
            raise OutboxError("the table has no status: write_back must be delete")
        if "status" in found and (missing := [name for name in STATUSES if name not in profile.statuses]):
            raise OutboxError(f"the seed outboxes names no value of the status for {', '.join(missing)}")
        return found

    @cached_property
    def _statuses(self) -> dict[str, Any]:
        """The values of the status by their meaning, as the column has them."""
        column = self._columns.get("status")
        found: dict[str, Any] = {}
        if column is None:
            return found
        for name, value in self.outbox.profile.statuses.items():
            try:
                found[name] = id_values(column, [value])[0] if isinstance(value, str) else value
            except (TypeError, ValueError):
                raise OutboxError(
                    f"the status {value!r} ({name}) is no value of the column {column.name}, which is {column.type}: "
                    f"columns of the seed outboxes may say status.{name}=..."
                ) from None
        return found

    @cached_property
    def _extra(self) -> dict[str, sa.ColumnElement[Any]]:
        """The columns that become headers, or part of the topic."""
        table = self._table
        headers = {
            f"header {name}": table.columns[column] for name, column in self.outbox.profile.headers.items() if column in table.columns
        }
        return {**headers, **{f"topic {name}": table.columns[name] for name in self.outbox.columns_of_topic}}

    @property
    def _is_json(self) -> bool:
        return isinstance(self._columns["value"].type, sa.JSON)

    @property
    def _order(self) -> tuple[sa.ColumnElement[Any], ...]:
        return tuple(self._columns[name] for name in self._order_fields)

    @cached_property
    def _order_fields(self) -> tuple[str, ...]:
        has_no_order = not isinstance(self._columns["id"].type, sa.Integer)
        return ("created_at", "id") if has_no_order and "created_at" in self._columns else ("id",)

    @property
    def _has_index(self) -> bool:
        """Whether an index leads to the pending rows. One whose condition leaves the others out may begin with the id."""
        first = {index.columns[0].name for index in self._table.indexes if len(index.columns)}
        conditions = any(
            options for index in self._table.indexes for name, options in index.dialect_kwargs.items() if name.endswith("_where")
        )
        return "status" not in self._columns or conditions or self._columns["status"].name in first

    @staticmethod
    def _read(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
        # as text: a number in JSON would lose digits on its way through Python
        return sa.cast(column, sa.Text) if isinstance(column.type, sa.JSON) else column

    @contextmanager
    def _connected(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.connect() as connection:
                yield connection
        except OutboxError:
            raise
        except SQLAlchemyError as error:
            # its owner may have changed the table: its columns are read again
            for name in ("_table", "_columns", "_statuses", "_extra", "_order_fields"):
                self.__dict__.pop(name, None)
            raise OutboxError(in_words(error)) from None
        except Exception as error:
            # a value that can't be read, or a driver's own error. Not with its text, which may quote the value
            raise OutboxError(f"a value can't be read or written: {type(error).__name__}") from error


def outbox_tables(rows: Iterable[Mapping[str, str]], connections: Mapping[str, str]) -> list[OutboxTable]:
    """The tables of rows of the seed `outboxes`."""
    return [OutboxTable(Outbox.of(row, connections)) for row in rows]


def _chunks(states: Sequence[RowState]) -> Iterator[list[str]]:
    return ([state.row_id for state in some] for some in _slices(states, _IDS_AT_ONCE))


def _slices(given: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    return (given[start : start + most] for start in range(0, len(given), most))
