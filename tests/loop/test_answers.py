"""Commands that a running loop answers: with the same words as an engine of their own, and without holding up what it does."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from orchestration.answers import asking
from orchestration.answers.asking import Asking
from orchestration.cli.main import app
from tests.loop.harness import Record, Redrive

pytestmark = pytest.mark.long

_LONG = "select sum(hash(id)) from range(0, 100000000000, 1, 100000)"
"""Hours of tasks of some milliseconds."""


@pytest.fixture(scope="module")
def dead(redrive: Redrive) -> Record:
    """An open dead letter in the topics `answered`, and a loop that does nothing else."""
    redrive.domain("answered")
    record = redrive.fails("answered.orders", b"k", b"v", error="KeyError")
    redrive.dead("answered", 1)
    redrive.settle()
    return record


@pytest.fixture
def environment(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Commands find the loop's home, seeds and brokers."""
    settings = redrive.loop.settings
    ours = {
        "REDRIVE_HOME": str(settings.home),
        "REDRIVE_SEEDS": str(settings.seeds),
        "REDRIVE_KAFKA__BOOTSTRAP_SERVERS": settings.kafka_properties["bootstrap.servers"],
        "REDRIVE_INTAKE_MAX_ROWS": str(settings.intake_max_rows),
    }
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    return {**os.environ, **ours}


@pytest.fixture
def patient(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that doesn't decline what takes long on a busy machine, and whoever asks it waits."""
    answers = redrive.loop._serving._answers  # type: ignore[union-attr]
    monkeypatch.setattr(answers, "_seconds", 600.0)
    monkeypatch.setattr(answers._allowance, "_seconds", 600.0)
    monkeypatch.setattr(asking, "_FROZEN_SECONDS", 600.0)


WRONG = {
    "sql|select no_such_column from messages",
    "sql|delete from messages",
    "explain|nobody:knows/0/1",
    "policy|try|exponential(faktor=2)",
    "dlq|list|--topic|^(",
    "dlq|list|--topic|answered.orders|--where|no condition (",
    "dlq|show|nobody:knows/0/1",
}
"""The commands that end with an error. `check` says what it finds."""


@pytest.mark.parametrize(
    "command",
    [
        "sql|select message_id, state, next_due, last_failed_at from messages where original_topic = 'answered.orders'",
        "sql|describe messages",
        "sql|select no_such_column from messages",
        "explain|ID",
        "check",
        "dlq|list|--topic|answered.orders",
        "dlq|list|--topic|^(",
        *(
            pytest.param(command, marks=pytest.mark.slow)
            for command in (
                "sql|delete from messages",
                "sql|--format|json|select headers, value, due_at from deliveries"
                " where original_topic = 'answered.orders' order by delivery_id",
                "dlq|show|ID",
                "policy|try|exponential(initial=1s, factor=2, max=60s, jitter=0.3, attempts=5)",
                "explain|nobody:knows/0/1",
                "classify|--class|java.net.SocketTimeoutException|--topic|answered.orders|--group|billing",
                "policy|try|exponential(faktor=2)",
                "dlq|list|--topic|answered.orders|--where|no condition (",
                "dlq|show|ID|--format|json",
                "dlq|show|nobody:knows/0/1",
                "dlq|groups|--topic|answered.orders",
                "dlq|stats|--topic|answered.orders",
                "dlq|related|ID",
                "waiting|list|--topic|answered.orders",
                "dlq|redrive|--topic|answered.orders|--reason|try|--dry-run",
                "dlq|triage|--dry-run",
                "dlq|redrive|ID|--reason|try|--dry-run",
            )
        ),
    ],
)
def test_a_loop_answers_as_an_engine_of_ones_own_does(
    dead: Record, environment: dict[str, str], patient: None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [f"billing:{dead.topic}/{dead.partition}/{dead.offset}" if word == "ID" else word for word in command.split("|")]
    by_own_engine = CliRunner().invoke(app, words)
    monkeypatch.setattr(asking, "_has_engine", lambda: False)
    monkeypatch.setattr(asking, "subject_of", pytest.fail)
    by_the_loop = CliRunner().invoke(app, words)
    assert said(by_the_loop) == said(by_own_engine)
    if command != "check":
        assert (by_own_engine.exit_code == 0) == (command not in WRONG), by_own_engine.stderr or by_own_engine.exception
    assert "starts Spark" not in by_the_loop.stderr


def said(result: Result) -> tuple[int, str, str, str]:
    """What a command has said, and how it ended."""
    return result.exit_code, result.stdout, result.stderr, str(result.exception)


@pytest.mark.parametrize(
    "words",
    [
        ("dlq", "list"),
        ("explain", "ID"),
        pytest.param(("sql", "select * from messages"), marks=pytest.mark.slow),
        ("check",),
    ],
)
def test_a_command_that_is_answered_loads_no_engine(dead: Record, environment: dict[str, str], words: tuple[str, ...]) -> None:
    words = tuple(f"billing:{dead.topic}/{dead.partition}/{dead.offset}" if word == "ID" else word for word in words)
    program = (
        "import sys\n"
        "from orchestration.cli.main import app\n"
        "try:\n"
        "    app(sys.argv[1:])\n"
        "finally:\n"
        "    print('loaded', {'pyspark', 'dbt', 'pyarrow'} & {*sys.modules}, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], env=environment, capture_output=True, text=True, timeout=120)
    assert "loaded set()" in done.stderr
    assert "answered.orders" in done.stdout


@pytest.mark.slow
def test_an_export_is_read_by_an_engine_of_its_own(
    dead: Record, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_has_engine", lambda: False)
    monkeypatch.setattr(asking, "_answer_of", pytest.fail)
    done = CliRunner().invoke(app, ["dlq", "export", "--topic", dead.topic, "--to", str(tmp_path / "dead.jsonl")])
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "dead.jsonl").read_text().count("\n") == 1
    assert "an export may be too large for a running loop to send: this command starts Spark" in " ".join(done.stderr.split())


def test_more_than_the_loop_reads_is_declined(dead: Record, redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_has_engine", lambda: False)
    reasons: list[str] = []
    rows = Asking(redrive.loop.settings, reasons.append).tables.rows("select id from range(10001)")
    assert (len(rows), reasons) == (10_001, ["the running loop doesn't read more than 10,000 rows, or than 64 MB"])
    wide = Asking(redrive.loop.settings, reasons.append).tables.rows("select repeat('x', 1000000) as text from range(70)")
    assert (len(wide), len(reasons)) == (70, 2)


@pytest.mark.slow
def test_a_question_that_takes_long_does_not_stop_the_loop(
    dead: Record, redrive: Redrive, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = redrive.loop._serving._answers  # type: ignore[union-attr]
    monkeypatch.setattr(asking, "_has_engine", lambda: False)
    declined = threading.Event()

    monkeypatch.setattr(asking.Asking, "_engine", lambda *_: SimpleNamespace(rows=lambda _: declined.set()))
    threading.Thread(target=Asking(redrive.loop.settings).tables.rows, args=(_LONG,), daemon=True).start()
    group = redrive.until(lambda: answers._group, "the question is asked")
    redrive.fails("answered.orders", b"k2", b"v2")
    redrive.retries("answered", 1)
    assert (answers._group, declined.is_set()) == (group, False)
    answers._cancel(str(group))
    redrive.until(declined.is_set, "the question is cancelled")
    assert Asking(redrive.loop.settings).tables.rows("select 1 as one") == [{"one": 1}]
