"""Asks the running loop of a home. If none answers, this process starts Spark and answers the question itself.

Both ways call the same methods, those of DeadLetters, Rulebook and Tables.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, cast

from orchestration.answers.conversation import (
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
from orchestration.settings import Settings

if TYPE_CHECKING:
    from orchestration.operators.dead_letters import DeadLetters
    from orchestration.rules.rulebook import Rulebook
    from orchestration.tables.query import Tables

# A loop answers or declines within QUESTION_SECONDS. If it has done neither after this time, its process is taken to be frozen.
_FROZEN_SECONDS = QUESTION_SECONDS + 5


class Asking:
    """Questions about an installation. `dead_letters`, `rulebook` and `tables` have the methods of their classes."""

    def __init__(self, settings: Settings, starting: Callable[[str], None] = lambda why: None) -> None:
        """starting: called with the reason before this process starts Spark, which takes ten seconds or more."""
        self.settings = settings
        self._starting = starting
        self._own: dict[Subject, Any] = {}
        self._is_declined = False

    @property
    def dead_letters(self) -> DeadLetters:
        """Questions about dead letters, and about waiting messages."""
        return cast("DeadLetters", _Asked(self, "dead_letters"))

    @property
    def rulebook(self) -> Rulebook:
        """Questions about the rules."""
        return cast("Rulebook", _Asked(self, "rulebook"))

    @property
    def tables(self) -> Tables:
        """Questions in SQL."""
        return cast("Tables", _Asked(self, "tables"))

    def own_dead_letters(self, why: str) -> DeadLetters:
        """Dead letters read with Spark in this process, for results that are too large for the loop to send. why: the reason to show."""
        return cast("DeadLetters", self._engine("dead_letters", why))

    def ask(self, subject: Subject, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Calls a method: in the loop if it answers, else in this process. Raises what the method raises."""
        # if Spark runs in this process already, as in a step of Dagster's, there is no need to ask the loop
        if self._is_declined or _has_engine():
            return getattr(self._engine(subject, ""), method)(*arguments, **options)
        answer = _answer_of(self.settings, Question(program_version(), self.settings.project, subject, method, arguments, options))
        if isinstance(answer, Answered):
            return answer.value
        if isinstance(answer, Failed):
            raise answer.error
        self._is_declined = True
        return getattr(self._engine(subject, answer.why), method)(*arguments, **options)

    def _engine(self, subject: Subject, why: str) -> Any:
        if subject not in self._own:
            if why and not _has_engine():
                self._starting(why)
            self._own[subject] = subject_of(subject, self.settings)
        return self._own[subject]


class _Asked:
    """Turns each call of a method into a question."""

    def __init__(self, asking: Asking, subject: Subject) -> None:
        self._asking = asking
        self._subject = subject

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *arguments, **options: self._asking.ask(self._subject, method, arguments, options)


def subject_of(subject: Subject, settings: Settings) -> DeadLetters | Rulebook | Tables:
    """The object whose method a question calls. Starts Spark when it is needed. Raises DlqError if there are no tables."""
    # imported here: whoever asks a running loop needs neither Spark nor dbt
    if subject == "dead_letters":
        from orchestration.operators.dead_letters import DeadLetters

        return DeadLetters(settings)
    if subject == "rulebook":
        from orchestration.rules.rulebook import Rulebook

        return Rulebook(settings)
    from orchestration.tables.query import Tables

    return Tables(settings)


def _has_engine() -> bool:
    """Whether Spark runs in this process already. Not imported for that: it takes a second."""
    spark = sys.modules.get("orchestration.tables.spark")
    return spark is not None and spark.runs_spark()


def _connected(address: str) -> Connection:
    """A connection to a loop. Raises BlockingIOError if the loop is frozen, and as many as it may let wait have asked already."""
    with socket.socket(socket.AF_UNIX) as end:
        # a time limit of Python's own would not let it wait at all
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(_FROZEN_SECONDS), 0))
        end.connect(address)
        return Connection(end.detach())


def _answer_of(settings: Settings, question: Question) -> Answer:
    """The answer of the newest loop that answers."""
    try:
        sockets = sorted(directory_of(settings.home).glob("*.sock"), key=generation_of, reverse=True)
    except OSError:
        sockets = []
    for path in sockets:
        try:
            with reachable(path) as address, _connected(address) as connection:
                if not is_mine(connection):
                    return Declined("the loop of this home runs as another user")
                connection.send(question)
                if not connection.poll(_FROZEN_SECONDS):
                    return Declined("the running loop doesn't answer")
                return cast(Answer, connection.recv())
        except BlockingIOError:
            return Declined("the running loop doesn't answer")
        except (ConnectionRefusedError, FileNotFoundError):
            # its loop has ended
            continue
        except PermissionError:
            return Declined("the loop of this home runs as another user")
        except (EOFError, OSError):
            return Declined("the loop ended before it answered")
        except Exception as error:
            return Declined(f"the answer of the running loop can't be read: {type(error).__name__}")
    return Declined(f"no loop runs with its state under {settings.home}")
