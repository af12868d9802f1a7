"""A running loop answers questions: what is asked, by whom, and what happens when it doesn't answer. Without Spark."""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import pytest

from orchestration.answers import answers as server
from orchestration.answers import asking as client
from orchestration.answers.allowance import Allowance
from orchestration.answers.answers import Answers
from orchestration.answers.asking import Asking
from orchestration.answers.conversation import Answered, Declined, Question, directory_of, program_version, reachable
from orchestration.operators.selections import DlqError
from orchestration.settings import Settings, load_settings
from orchestration.tables.rows import TooMuchError


class Spark:
    """Remembers whether a question waits, and whether jobs were cancelled. In place of a session, and of its context."""

    def __init__(self) -> None:
        self.waits = threading.Event()
        self.cancelled = threading.Event()
        self.sparkContext = self

    def setLocalProperty(self, *_: object) -> None: ...  # noqa: N802  # Spark's name

    def setJobGroup(self, *_: object, **__: object) -> None: ...  # noqa: N802  # Spark's name

    def cancelJobGroup(self, _: str) -> None:  # noqa: N802  # Spark's name
        self.cancelled.set()


class Tables:
    """What is asked. Every method is one of the real class's."""

    spark: Spark

    def rows(self, statement: str) -> list[dict[str, Any]]:
        if statement == "wait":
            self.spark.waits.set()
            self.spark.cancelled.wait(30)
            raise RuntimeError("cancelled")
        if statement == "too much":
            raise TooMuchError("more than 2 rows, or than 1 MB")
        if statement == "not to be sent":
            return [{"lock": threading.Lock()}]
        return [{"statement": statement}]

    def select(self, statement: str, limit: int) -> None:
        raise DlqError(f"{statement} {limit}")

    def missing(self) -> str:
        return "the engine of the one who asks"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(home=tmp_path)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    """A loop whose tables are those above, and a process that would have to start an engine."""
    tables = Tables()
    tables.spark = Spark()
    monkeypatch.setattr(server, "subject_of", lambda *_: tables)
    monkeypatch.setattr(client, "subject_of", lambda *_: tables)
    monkeypatch.setattr(client, "_has_engine", lambda: False)
    return tables.spark


@pytest.fixture
def serve(settings: Settings, spark: Spark) -> Iterator[Callable[..., Answers]]:
    """``serve(generation=7)`` begins to answer."""
    begun: list[Answers] = []

    def begin(generation: int = 7, home: Path | None = None, seconds: float = 20, allowance: Allowance | None = None) -> Answers:
        at = settings if home is None else settings.model_copy(update={"home": home})
        begun.append(Answers(at, spark, generation, seconds, allowance))  # type: ignore[arg-type]  # Spark is replaced
        begun[-1].begin()
        return begun[-1]

    yield begin
    for one in begun:
        one.close()


class Told(list[str]):
    """The reasons for which an engine was started."""


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def asked(settings: Settings, told: Told) -> Asking:
    return Asking(settings, told.append)


def test_the_loop_answers(serve: Callable[..., Answers], asked: Asking, told: Told) -> None:
    serve()
    assert asked.tables.rows("select 1") == [{"statement": "select 1"}]
    assert asked.tables.rows("select 2") == [{"statement": "select 2"}]
    assert told == []


def test_an_error_that_says_what_to_do_is_raised_where_it_was_asked(serve: Callable[..., Answers], asked: Asking, told: Told) -> None:
    serve()
    with pytest.raises(DlqError, match="select 1 5"):
        asked.tables.select("select 1", 5)
    assert told == []


@pytest.mark.parametrize("statement", ["too much", "not to be sent"])
def test_what_the_loop_does_not_send_is_read_by_an_engine_of_ones_own(
    serve: Callable[..., Answers], asked: Asking, told: Told, statement: str
) -> None:
    serve()
    with pytest.raises(TooMuchError) if statement == "too much" else nullcontext():
        asked.tables.rows(statement)
    assert len(told) == 1
    # from then on, the engine that was started answers
    asked.tables.rows("select 1")
    assert len(told) == 1


def test_without_a_loop_the_reason_is_told_once(spark: Spark, asked: Asking, told: Told, settings: Settings) -> None:
    assert asked.tables.missing() == asked.tables.missing() == "the engine of the one who asks"
    assert told == [f"no loop runs with its state under {settings.home}"]


def test_a_process_that_has_an_engine_asks_no_loop(
    serve: Callable[..., Answers], asked: Asking, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve()
    monkeypatch.setattr(client, "_has_engine", lambda: True)
    monkeypatch.setattr(client, "_answer_of", pytest.fail)
    assert asked.tables.missing()
    assert told == []


def test_a_question_that_takes_too_long_is_cancelled_and_the_next_one_answered(
    serve: Callable[..., Answers], settings: Settings, spark: Spark, told: Told
) -> None:
    serve(seconds=0.3)
    with pytest.raises(RuntimeError, match="cancelled"):
        # the engine of the one who asks is the same object here, and its wait is over
        Asking(settings, told.append).tables.rows("wait")
    assert spark.cancelled.is_set()
    assert told == ["the running loop did not answer within 0.3 s"]
    assert Asking(settings, told.append).tables.rows("select 1") == [{"statement": "select 1"}]


def test_a_question_that_would_delay_a_tick_is_cancelled_and_the_next_one_waits_for_the_tick_to_end(
    serve: Callable[..., Answers], settings: Settings, spark: Spark, told: Told
) -> None:
    allowance = Allowance(0.3)
    serve(allowance=allowance)
    answered = threading.Event()

    def ask() -> None:
        assert Asking(settings, told.append).tables.rows("select 1") == [{"statement": "select 1"}]
        answered.set()

    asking = threading.Thread(target=ask)
    with allowance.tick():
        with pytest.raises(RuntimeError, match="cancelled"):
            # the engine of the one who asks is the same object here, and its wait is over
            Asking(settings, told.append).tables.rows("wait")
        assert spark.cancelled.is_set()
        asking.start()
        assert not answered.wait(1)
    asking.join(20)
    assert answered.is_set()
    assert told == ["the running loop is in a tick, which longer questions would delay"]


def test_a_question_that_cannot_begin_beside_a_tick_is_declined(
    serve: Callable[..., Answers], settings: Settings, spark: Spark, told: Told
) -> None:
    allowance = Allowance(0)
    serve(seconds=1, allowance=allowance)
    with allowance.tick():
        Asking(settings, told.append).tables.rows("select 1")
    assert told == ["the running loop is in a tick, which longer questions would delay"]


def test_the_jobs_of_a_question_that_nobody_waits_for_are_cancelled(
    serve: Callable[..., Answers], settings: Settings, spark: Spark
) -> None:
    serve()
    connection = Client(str(directory_of(settings.home) / "7.sock"), "AF_UNIX")
    connection.send(question(settings, "wait"))
    connection.close()
    assert spark.cancelled.wait(10)


def test_only_the_owner_enters_the_directory(serve: Callable[..., Answers], settings: Settings) -> None:
    directory_of(settings.home).mkdir(mode=0o755)
    serve()
    assert stat.S_IMODE(directory_of(settings.home).stat().st_mode) == 0o700


def test_another_user_is_neither_answered_nor_believed(
    serve: Callable[..., Answers], settings: Settings, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    serve()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    Asking(settings, told.append).tables.missing()
    assert told == ["the loop of this home runs as another user"]
    with Client(str(directory_of(settings.home) / "7.sock"), "AF_UNIX") as connection:
        # the loop hangs up, perhaps before the question is sent
        with suppress(BrokenPipeError):
            connection.send(question(settings, "select 1"))
        with pytest.raises((EOFError, ConnectionResetError)):
            connection.recv()


def test_a_home_with_a_long_name_is_asked_like_any_other(serve: Callable[..., Answers], settings: Settings, told: Told) -> None:
    home = settings.home / ("long" * 30)
    home.mkdir()
    serve(home=home)
    asked = Asking(settings.model_copy(update={"home": home}), told.append)
    assert asked.tables.rows("select 1") == [{"statement": "select 1"}]


def test_the_newest_loop_answers_and_a_socket_that_was_left_behind_is_passed_over(
    serve: Callable[..., Answers], settings: Settings, asked: Asking, told: Told
) -> None:
    serve(generation=9)
    left = directory_of(settings.home) / "10.sock"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(left))
    assert asked.tables.rows("select 1")
    serve(generation=11)
    assert sorted(path.name for path in directory_of(settings.home).iterdir()) == ["11.sock"]
    # an older one that listens, and never answers, is not asked
    with socket.socket(socket.AF_UNIX) as older:
        older.bind(str(directory_of(settings.home) / "9.sock"))
        older.listen()
        assert asked.tables.rows("select 1")
    assert told == []


def test_a_loop_that_has_ended_leaves_no_socket(serve: Callable[..., Answers], settings: Settings) -> None:
    before = threading.active_count()
    serve().close()
    assert list(directory_of(settings.home).iterdir()) == []
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_where_no_socket_can_be_made_the_loop_runs_on(
    serve: Callable[..., Answers], settings: Settings, caplog: pytest.LogCaptureFixture, asked: Asking, told: Told
) -> None:
    directory_of(settings.home).write_text("a file")
    serve()
    assert "answers" in caplog.text
    asked.tables.missing()
    assert told == [f"no loop runs with its state under {settings.home}"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"version": "0.0.1"}, "another version"),
        ({"project": Path("/elsewhere")}, "another project"),
        ({"method": "probe_all"}, "doesn't answer"),
        ({"method": "__init__"}, "doesn't answer"),
        ({"subject": "settings"}, "doesn't answer"),
    ],
)
def test_questions_that_are_declined(serve: Callable[..., Answers], settings: Settings, changes: dict[str, Any], why: str) -> None:
    serve()
    answer = say(settings, question(settings, "select 1", **changes))
    assert isinstance(answer, Declined)
    assert why in answer.why


def test_more_questions_than_may_wait_are_declined(
    serve: Callable[..., Answers], settings: Settings, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MOST_AT_ONCE", 1)
    serve()
    with Client(str(directory_of(settings.home) / "7.sock"), "AF_UNIX") as first:
        first.send(question(settings, "wait"))
        # without this, the second question may be answered first, and the one that waits declined
        assert spark.waits.wait(10)
        assert say(settings, question(settings, "select 1")) == Declined("the running loop has 1 other questions to answer")
    assert spark.cancelled.wait(10)


def test_a_connection_that_says_something_else_is_closed(serve: Callable[..., Answers], settings: Settings, asked: Asking) -> None:
    serve()
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x05hello", b"\0\0\0\x01N"):
        with socket.socket(socket.AF_UNIX) as plain:
            plain.settimeout(10)
            plain.connect(str(directory_of(settings.home) / "7.sock"))
            plain.sendall(said)
            plain.shutdown(socket.SHUT_WR)
            assert plain.recv(1) == b""
    assert asked.tables.rows("select 1")


def test_a_loop_that_ends_in_the_middle_is_not_waited_for(settings: Settings, spark: Spark, told: Told) -> None:
    directory_of(settings.home).mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(directory_of(settings.home) / "7.sock"))
        listening.listen()
        threading.Thread(target=lambda: listening.accept()[0].close(), daemon=True).start()
        assert Asking(settings, told.append).tables.missing()
    assert told == ["the loop ended before it answered"]


def question(settings: Settings, *arguments: object, **changes: Any) -> Question:
    given: dict[str, Any] = {"version": program_version(), "project": settings.project, "subject": "tables", "method": "rows"}
    return Question(**{**given, "arguments": arguments, "options": {}, **changes})


def say(settings: Settings, asked: Question) -> object:
    with reachable(directory_of(settings.home) / "7.sock") as address, Client(address, "AF_UNIX") as connection:
        assert isinstance(connection, Connection)
        connection.send(asked)
        return connection.recv()


def test_an_answer_is_what_the_method_returned(serve: Callable[..., Answers], settings: Settings) -> None:
    serve()
    assert say(settings, question(settings, options={"statement": "x"})) == Answered([{"statement": "x"}])
