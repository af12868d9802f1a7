"""What the steps of a run share: settings, one Spark session, one dbt, and a loop. The first step that needs one starts it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import PrivateAttr

from orchestration.errors import is_ours
from orchestration.logs import Event
from orchestration.output import one_line, printable, redacted
from orchestration.settings import Settings, load_settings
from orchestration.status import Entry, is_alive, read_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orchestration.answers.asking import Asking
    from orchestration.loop.loop import Loop, Tick
    from orchestration.tables.dbt import Dbt


class BusyError(Exception):
    """Another loop is running with this home, and take_over is not set."""


class NothingYetError(Exception):
    """The tables can't be used: no loop has made them yet, or they have another table version. The message says what to do."""


class Redrive(dg.ConfigurableResource):  # type: ignore[type-arg]
    """redrive in the process of a run. All steps of a run are in one process, so Spark and dbt start once for them."""

    _settings: Settings | None = PrivateAttr(default=None)
    _dbt: Dbt | None = PrivateAttr(default=None)
    _asking: Asking | None = PrivateAttr(default=None)

    @property
    def settings(self) -> Settings:
        """The settings, read when the run starts: environment, redrive.toml, defaults."""
        if self._settings is None:
            self._settings = load_settings()
        return self._settings

    @property
    def spark(self) -> SparkSession:
        """The session of this process. dbt uses it, too, if it exists before dbt starts."""
        from orchestration.tables.spark import start_session

        return start_session(self.settings)

    @property
    def dbt(self) -> Dbt:
        """dbt in this process: a subprocess would start another JVM each time."""
        from orchestration.tables.dbt import Dbt

        if self._dbt is None:
            # our session first: in one that dbt starts, Python workers would not find our packages, which a later tick needs
            assert self.spark is not None
            self._dbt = Dbt(self.settings)
        return self._dbt

    @property
    def asking(self) -> Asking:
        """Questions: answered by a loop that runs with this home, or else by Spark in this process."""
        from orchestration.answers.asking import Asking

        if self._asking is None:
            self._asking = Asking(self.settings)
        return self._asking

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Runs a query, with the tables under their own names."""
        return self.asking.tables.rows(statement)

    def rows(self, table: str) -> int:
        """How many rows a table or view has."""
        return int(self.sql(f"select count(*) as n from {table}")[0]["n"])

    def require_tables(self) -> None:
        """Raises NothingYetError if no loop has made the tables."""
        tables = self.asking.tables
        if missing := tables.missing():
            raise NothingYetError(f"{missing}. In Dagster: materialize `events`, which runs one tick")
        if objection := tables.unreadable():
            raise NothingYetError(objection)

    def new_loop(self, *, take_over: bool, one_tick: bool = False, on_tick: Callable[[Tick], None] | None = None) -> Loop:
        """A loop that has not started yet. one_tick: it ends after one tick. Raises BusyError, SettingsError."""
        from orchestration.loop.loop import Loop

        self.settings.require_brokers()
        if not take_over:
            self._require_no_other_loop()
        return Loop(self.settings.of_one_tick() if one_tick else self.settings, on_tick=on_tick)

    @contextmanager
    def started(self, loop: Loop) -> Iterator[Loop]:
        """Starts a loop, and closes it on leaving. Later steps use its dbt, which has parsed the project.

        Raises BusyError if another loop is in charge by then, or takes over.
        """
        loop.start()
        self._dbt = loop.dbt
        try:
            _require_charge(loop)
            yield loop
            _require_charge(loop)
        finally:
            loop.close()

    def health(self) -> tuple[Entry, ...]:
        """What doesn't work, and why, by the status file."""
        status = read_status(self.settings.status_file)
        return status.health if status else ()

    def _require_no_other_loop(self) -> None:
        status = read_status(self.settings.status_file)
        if status and is_alive(status, self.settings.home):
            raise BusyError(
                f"a loop is running with its state under {self.settings.home}: generation {status.generation}, process {status.pid}, "
                f"last tick at {status.at}. Stop it first, or set take_over: true in the run's config: that loop then stops by itself."
            )


def _require_charge(loop: Loop) -> None:
    if loop.superseded_by is not None:
        raise BusyError(f"another loop is in charge, of generation {loop.superseded_by}: this one has stopped, and sends nothing more")


@contextmanager
def our_errors() -> Iterator[None]:
    """Turns errors of this project, whose text says what to do, into failures without a traceback. Others keep theirs."""
    try:
        yield
    except Exception as error:
        if is_ours(error):
            raise dg.Failure(description=printable(redacted(str(error))), allow_retries=False) from None
        if redacted(str(error)) != str(error):
            # replaced, as Dagster stores the texts of an error and of its causes, secrets included
            raise dg.Failure(description=f"{type(error).__name__}: {printable(redacted(str(error)))}") from None
        raise


@contextmanager
def forwarded(log: logging.Logger) -> Iterator[None]:
    """Shows the loop's log lines in the run's log. The line of a tick is left out, as its materializations have the same content."""
    handler = _Forwarding(log)
    ours = logging.getLogger("orchestration")
    level = ours.level
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.removeHandler(handler)
        ours.setLevel(level)


class _Forwarding(logging.Handler):
    def __init__(self, to: logging.Logger) -> None:
        super().__init__(logging.INFO)
        self._to = to

    def emit(self, record: logging.LogRecord) -> None:
        if not (isinstance(record.msg, Event) and record.msg.name == "tick_completed"):
            self._to.log(record.levelno, "%s", one_line(record.getMessage()))
