"""Answers the questions of commands in the process of a running loop, in which Spark has started already.

Questions run one at a time, in their own session and scheduler pool, bounded in time, rows and bytes, and more so while a tick runs.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Final

from pyspark.sql import SparkSession

from orchestration.answers.allowance import Allowance
from orchestration.answers.asking import subject_of
from orchestration.answers.conversation import (
    MOST_BYTES,
    MOST_ROWS,
    QUESTION_SECONDS,
    Answer,
    Answered,
    Declined,
    Failed,
    Question,
    Subject,
    directory_of,
    generation_of,
    is_mine,
    program_version,
    reachable,
)
from orchestration.errors import is_ours
from orchestration.logs import event
from orchestration.settings import Settings
from orchestration.tables.rows import TooMuchError, bounded
from orchestration.tables.spark import in_short

log = logging.getLogger(__name__)

POOL: Final = "questions"
"""The scheduler pool of questions. Spark shares the processors equally between it and the loop's."""

_METHODS: Final[dict[Subject, frozenset[str]]] = {
    "dead_letters": frozenset(
        ("checked", "checked_pattern", "find", "get", "groups", "history_of", "related", "rows", "stats", "waiting"),
    ),
    "rulebook": frozenset(("classify", "history_of", "plan", "reading_of", "redrives", "schedule_of")),
    "tables": frozenset(("missing", "objections_to_source", "probe", "rows", "select", "unreadable")),
}
"""The methods that may be asked for."""

# A connection that says nothing is closed after this time.
_SILENT_SECONDS = 5.0

# The most questions at once: the one that is being answered, and those that wait for their turn.
_MOST_AT_ONCE = 8

_BUSY = "the running loop is in a tick, which longer questions would delay"

# How often to check that the command that asks is still connected, in seconds.
_LOOKS_EVERY = 0.1


class Answers:
    """The socket of a loop, and the threads that answer."""

    def __init__(
        self,
        settings: Settings,
        spark: SparkSession,
        generation: int,
        seconds: float = QUESTION_SECONDS,
        allowance: Allowance | None = None,
    ) -> None:
        """seconds: how long a question may take, including the wait for its turn. allowance: how long beside a tick."""
        self._settings = settings
        self._allowance = allowance or Allowance()
        self._spark = spark
        self._seconds = seconds
        self._subjects: dict[Subject, Any] = {}
        self._room = threading.Semaphore(_MOST_AT_ONCE)
        # one thread for all questions: Spark keeps a thread and a connection for each one that calls it
        self._engine = ThreadPoolExecutor(1, thread_name_prefix="answers")
        self._group: str | None = None
        self._path = directory_of(settings.home) / f"{generation}.sock"
        self._listener: Listener | None = None

    def begin(self) -> None:
        """Removes the sockets of older loops, makes this one's, and listens. If that fails, it is logged, and no question is answered."""
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._path.parent.chmod(0o700)
            for path in self._path.parent.glob("*.sock"):
                if generation_of(path) <= generation_of(self._path):
                    path.unlink(missing_ok=True)
            with reachable(self._path) as address:
                self._listener = Listener(address, "AF_UNIX", backlog=_MOST_AT_ONCE)
        except OSError as error:
            event(log, logging.WARNING, "answers_unavailable", socket=self._path, reason=error)
            return
        threading.Thread(target=self._listen, args=(self._listener,), name="answers", daemon=True).start()

    def close(self) -> None:
        """Removes the socket, and cancels the question that is being answered."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError), reachable(self._path) as address:
                # this connection ends `accept`, which would go on waiting after the socket is closed
                Client(address, "AF_UNIX").close()
            self._path.unlink(missing_ok=True)
            with suppress(OSError):
                listener.close()
        self._engine.shutdown(wait=False, cancel_futures=True)
        if self._group is not None:
            self._cancel(self._group)

    def _listen(self, listener: Listener) -> None:
        while self._listener is listener:
            try:
                connection = listener.accept()
            except OSError:
                # out of file descriptors, which may pass
                time.sleep(0.1)
                continue
            threading.Thread(target=self._serve, args=(connection,), name="answer", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        """Reads one question, and sends its answer."""
        with connection, suppress(EOFError, OSError):
            if not is_mine(connection) or not connection.poll(_SILENT_SECONDS):
                return
            try:
                question = connection.recv()
            except Exception:
                # what can't be unpickled was not written by this program
                return
            if isinstance(question, Question):
                _send(connection, self._answer(question, connection))

    def _answer(self, question: Question, connection: Connection) -> Answer:
        if question.version != program_version() or question.project != self._settings.project:
            return Declined("the running loop is of another version, or has another project directory")
        if question.method not in _METHODS.get(question.subject, ()):
            return Declined(f"the running loop doesn't answer {question.method!r} of {question.subject!r}")
        if not self._room.acquire(blocking=False):
            return Declined(f"the running loop has {_MOST_AT_ONCE} other questions to answer")
        try:
            return self._wait_for(question, connection)
        except RuntimeError:
            return Declined("the running loop is stopping")
        finally:
            self._room.release()

    def _wait_for(self, question: Question, connection: Connection) -> Answer:
        """Has a question answered. If it takes too long, or its command has disconnected, its jobs are cancelled."""
        group = f"{POOL}-{time.monotonic_ns()}"
        until = time.monotonic() + self._seconds
        answer = self._engine.submit(self._ask, question, group, until)
        while not wait((answer,), _LOOKS_EVERY).done:
            is_busy = self._allowance.left() <= 0
            # a command sends nothing after its question: if there is something to read, it is the end of the connection
            if (is_busy and self._group == group) or connection.poll(0) or time.monotonic() >= until:
                answer.cancel()
                while not wait((answer,), _LOOKS_EVERY).done:
                    # repeated, as the question may start another job after one was cancelled
                    self._cancel(group)
                return Declined(_BUSY if is_busy else f"the running loop did not answer within {self._seconds:g} s")
        return answer.result()

    def _ask(self, question: Question, group: str, until: float) -> Answer:
        """Calls the method, if the tick that runs leaves time for it. Runs in the thread of the questions."""
        if not self._allowance.waited_for(until):
            return Declined(_BUSY)
        context = self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", POOL)
        context.setJobGroup(group, f"{question.subject}.{question.method}", interruptOnCancel=True)
        self._group = group
        try:
            with self._allowance.question(), bounded(MOST_ROWS, MOST_BYTES):
                return Answered(getattr(self._subject(question.subject), question.method)(*question.arguments, **question.options))
        except TooMuchError as error:
            return Declined(f"the running loop doesn't read {error}")
        except Exception as error:
            return Failed(error) if is_ours(error) else Declined(f"the running loop failed: {in_short(error)}")
        finally:
            self._group = None

    def _subject(self, subject: Subject) -> Any:
        # made at the first question about it: dbt parses the project for the rulebook
        if subject not in self._subjects:
            self._subjects[subject] = subject_of(subject, self._settings)
        return self._subjects[subject]

    def _cancel(self, group: str) -> None:
        with suppress(Exception):
            self._spark.sparkContext.cancelJobGroup(group)


def _send(connection: Connection, answer: Answer) -> None:
    try:
        connection.send(answer)
    except (EOFError, OSError):
        raise
    except Exception as error:
        # a value or an error that can't be pickled
        connection.send(Declined(f"the answer can't be sent: {type(error).__name__}"))


__all__ = ["POOL", "Answers"]
