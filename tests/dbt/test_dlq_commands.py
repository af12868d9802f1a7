"""`redrive dlq` and `redrive waiting`, as they are called: on a home with a few dead letters, of which one holds hostile bytes.

Longer than other modules: its tests share the dead letters, which take half a minute to make.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row
from typer.main import get_command
from typer.testing import CliRunner, Result

from orchestration.cli.main import app, main
from orchestration.dagster.report import read_report
from orchestration.operators.commands import CommandRequest
from orchestration.operators.dead_letters import DeadLetters
from orchestration.operators.lists import Target
from orchestration.operators.selections import DlqError, Selection
from orchestration.rules.seeds import read_seeds
from orchestration.settings import Settings, load_settings
from orchestration.status import Status, write_status
from orchestration.tables.query import Rows
from orchestration.tables.rows import collected
from tests.dbt.harness import PROJECT, Home, report
from tests.dbt.test_dead_letter_marts import ask, die
from tests.unit.test_output import is_safe

pytestmark = pytest.mark.long

HOSTILE = b"\xff\x00\x1b[31m'\"\\"
# for a terminal and a log: escape sequences, forged lines, marks of direction, C1 controls, and more than anybody reads
TERMINAL = "\x1b[2J\x07\r\nforged\u202e\u2066\u200f\x9b31m" + "x" * 10_000
Call = Callable[..., Result]


@pytest.fixture(scope="module")
def dead(home: Home) -> list[Row]:
    """Three open dead letters of the topic `dlq`, one that was redriven and one that was discarded; and one message that waits."""
    home.append_reports(report("dlq", 99, error="a.B"))
    shop = report("dlq", 0, error="java.lang.NullPointerException", key=b"k", value=b'{"order": 17, "why": [1, 2]}')
    deaths = die(
        home,
        shop,
        report("dlq", 1, error="java.lang.NullPointerException", key=b"k", value=HOSTILE),
        report("dlq", 2, error="java.lang.ClassCastException", key=b"other", value=None, group="shipping"),
        report("dlq", 3, error="java.lang.NullPointerException"),
        report("dlq", 4, error="java.lang.NullPointerException"),
    )
    home.later(minutes=1)
    ask(home, ("redrive", deaths[3]), ("discard", deaths[4]))
    return deaths


@pytest.fixture
def call(home: Home, dead: list[Row]) -> Call:
    """Calls a command on the home."""
    assert dead

    def called(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--home", str(home.path)], env={"COLUMNS": "120"})

    return called


@pytest.fixture
def sound_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has commands read the project's seeds: those of this home have rows that no command would take."""
    shipped = read_seeds(PROJECT / "dbt_project" / "seeds")
    monkeypatch.setattr("orchestration.rules.seeds.read_seeds", lambda _: shipped)


def rows(result: Result) -> list[dict[str, object]]:
    assert result.exception is None, result.exception
    found = json.loads(result.stdout)
    return found if isinstance(found, list) else [found]


def ids(result: Result) -> set[str]:
    return {str(row["message_id"]).removeprefix("billing:dlq/0/").removeprefix("shipping:dlq/0/") for row in rows(result)}


SELECTIONS: list[tuple[Selection, set[int]]] = [
    (Selection(), {0, 1, 2, 3, 4}),
    (Selection(state="open"), {0, 1, 2}),
    (Selection(state="discarded"), {4}),
    (Selection(error_class="NullPointerException"), {0, 1, 3, 4}),
    (Selection(state="open", error_class="^java[.]lang[.]Class"), {2}),
    (Selection(group="shipping"), {2}),
    (Selection(since=datetime(2026, 3, 1, 12, tzinfo=UTC), where="value_bytes is null"), {2}),
    (Selection(since=datetime(2100, 1, 1, tzinfo=UTC)), set()),
    (Selection(where="original_offset < 1 or original_offset = 2 -- the first and the third"), {0, 2}),
    (Selection(where="error_class like '%Class%' and attempts = 1"), {2}),
]


def test_a_selection_finds_what_it_says(home: Home, dead: list[Row]) -> None:
    assert dead
    # all in one statement: to look at the dead letters takes two seconds
    asked = ", ".join(f"collect_set(case when {selection.condition()} then original_offset end)" for selection, _ in SELECTIONS)
    (found,) = home.ask(f"select {asked} from stranded_messages where original_topic = 'dlq'")
    assert [set(offsets) for offsets in found] == [offsets for _, offsets in SELECTIONS]


def test_list_finds_what_its_options_select(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ids(call("dlq", "list", "--topic", "dlq", "--format", "json")) == {"0", "1", "2"}
    asked: list[Selection] = []

    def find(_: DeadLetters, selection: Selection, limit: int) -> Rows:
        asked.append(selection)
        return Rows(("message_id",), (), more=limit < 7)

    monkeypatch.setattr(DeadLetters, "find", find)
    options = "--topic t --class c --group g --fingerprint f --state all --since 2026-03-01T12:00 --where attempts=1 --limit 7"
    assert call("dlq", "list", *options.split()).exception is None
    assert asked == [
        Selection((), "all", "t", "c", "g", "f", since=datetime(2026, 3, 1, 12, tzinfo=UTC), where="attempts=1"),
    ]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("attempts >", "is not a condition"),
        ("1 = 1) or (1 = 1", "is not a condition"),
        ("true; drop table events", "is not a condition"),
        ("select 1", "is not a condition"),
        ("exists (select 1 from events)", "without a select in it"),
        ("message_id in (select message_id from attempts)", "without a select in it"),
        ("(select max(batch) from events) > 0", "without a select in it"),
        ("java_method('java.lang.System', 'exit', 1) = ''", "does more than filter"),
        ("upper(`REFLECT`('java.lang.System', 'gc')) = ''", "does more than filter"),
        ("exists(array(1), x -> try_reflect('java.lang.System', 'gc') = '')", "does more than filter"),
        ("/* " + "x", "is not a condition"),
        ("no_such_column = 1", "no_such_column"),
        ("count(*) > 1", "aggregate"),
    ],
)
def test_a_condition_can_do_nothing_but_filter(call: Call, where: str, said: str) -> None:
    result = call("dlq", "list", "--where", where)
    assert result.exception is not None
    assert getattr(result.exception, "exit_code", None) == 2
    assert said.lower() in str(result.exception).lower()
    assert result.stdout == ""


def test_list_is_a_table_and_says_when_there_is_more_or_nothing(call: Call, dead: list[Row]) -> None:
    result = call("dlq", "list", "--topic", "dlq", "--limit", "2")
    assert dead[1]["message_id"] in result.stdout
    assert "NullPointerException: boo" in result.stdout
    assert "there are more than these 2 rows" in result.stderr
    result = call("dlq", "list", "--topic", "nowhere")
    assert (result.exit_code, result.stdout, result.stderr.strip()) == (0, "", "no dead letter in state open (--state) matches")
    with pytest.raises(DlqError, match="is not a time"):
        raise call("dlq", "list", "--since", "soon").exception or AssertionError


def test_show_tells_everything_that_is_known(call: Call, dead: list[Row]) -> None:
    text = call("dlq", "show", dead[0]["message_id"]).stdout
    for part in (
        "open, life cycle 1 of 1",
        "dlq.dlq/0/1",
        "java.lang.NullPointerException",
        "boo",
        '  "order": 17,',
        "json, 28 bytes",
        "0x00ff",
    ):
        assert part in text
    assert "dead_letter (fatal) to dlq.dlq" in text
    hostile = call("dlq", "show", dead[1]["message_id"]).stdout
    assert "0000  ff 00 1b 5b 33 31 6d 27 22 5c" in hostile
    assert "\x1b" not in hostile
    (row,) = rows(call("dlq", "show", dead[1]["message_id"], "--format", "json"))
    assert row["value"] == {"base64": base64.b64encode(HOSTILE).decode()}


def test_show_writes_the_payload_byte_for_byte(call: Call, dead: list[Row], tmp_path: Path) -> None:
    result = call("dlq", "show", dead[1]["message_id"], "--payload", str(tmp_path / "value"))
    assert (tmp_path / "value").read_bytes() == HOSTILE
    assert (result.stdout, "10 bytes written" in result.stderr) == ("", True)
    assert call("dlq", "show", dead[1]["message_id"], "--payload", "-").stdout_bytes == HOSTILE
    result = call("dlq", "show", dead[2]["message_id"], "--payload", str(tmp_path / "null"))
    assert (result.exit_code, (tmp_path / "null").exists()) == (2, False)


@pytest.mark.parametrize("command", ["show", pytest.param("related", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("message_id", "said"), [("it's; --", "no message is called"), ("billing:dlq/0/99", "its state is waiting"), ("", "no message")]
)
def test_an_id_that_is_no_dead_letter(call: Call, command: str, message_id: str, said: str) -> None:
    result = call("dlq", command, message_id)
    assert isinstance(result.exception, DlqError)
    assert said in str(result.exception)


def test_groups_count_what_is_selected(call: Call, dead: list[Row]) -> None:
    found = rows(call("dlq", "groups", "--topic", "dlq", "--format", "json"))
    assert [(row["error_class"], row["open"], row["dead"], row["died"]) for row in found] == [
        ("java.lang.NullPointerException", 2, 3, 4),
        ("java.lang.ClassCastException", 1, 1, 1),
    ]
    fingerprint = str(found[1]["fingerprint"])
    assert fingerprint in call("dlq", "groups", "--topic", "dlq").stdout
    assert ids(call("dlq", "list", "--fingerprint", fingerprint, "--topic", "dlq", "--format", "json")) == {"2"}


@pytest.mark.slow
def test_open_dead_and_died_are_the_same_numbers_everywhere(call: Call, home: Home) -> None:
    spark = home.spark.newSession()
    spark.sql(f"use {home.schema}")

    def query(statement: str) -> list[Row]:
        return collected(spark.sql(statement))

    # discarded while it is on its way
    (redriven,) = die(home, report("numbers", 0, error="java.lang.NullPointerException"))
    home.later(minutes=1)
    ask(home, ("redrive", redriven))
    ask(home, ("discard", redriven))

    dead = "state = 'open' or (state = 'discarded' and life_cycle = life_cycles)"
    by_message = {row["message_id"] for row in query("select message_id from messages where state = 'dead'")}
    assert {row["message_id"] for row in query(f"select message_id from dead_letters where {dead}")} == by_message
    (states,) = query(f"select count_if(state = 'open') as open, count_if({dead}) as dead, count(*) as died from dead_letters")
    (mart,) = query("select sum(open) as open, sum(dead) as dead, sum(died) as died from dead_letter_groups")
    groups = rows(call("dlq", "groups", "--format", "json", "--limit", "100000"))
    listed = rows(call("dlq", "list", "--format", "json", "--limit", "100000"))
    told = read_report(query, home.now)
    numbers = (states["open"], states["dead"], states["died"])
    assert 3 <= numbers[0] < numbers[1] < numbers[2]
    assert (mart["open"], mart["dead"], mart["died"]) == numbers
    assert tuple(sum(int(str(row[word])) for row in groups) for word in ("open", "dead", "died")) == numbers
    assert (told.open, told.dead, told.died) == numbers
    assert (len(listed), len(by_message)) == numbers[:2]


@pytest.mark.slow
def test_related_names_the_relations(call: Call, dead: list[Row]) -> None:
    found = {
        row["message_id"]: row["relations"]
        for row in rows(call("dlq", "related", dead[0]["message_id"], "--format", "json", "--limit", "9999"))
    }
    assert found[dead[1]["message_id"]] == ["error", "key", "time"]
    assert dead[0]["message_id"] not in found
    assert "later" in call("dlq", "related", dead[0]["message_id"], "--limit", "1").stdout


def test_stats_count_by_topic(call: Call, monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    monkeypatch.setattr("orchestration.clock.wall_clock", lambda: home.now)
    (row,) = rows(call("dlq", "stats", "--topic", "dlq", "--format", "json"))
    assert (row["last_24_hours"], row["usual"], row["is_unusual"]) == (5, 0, False)
    assert len(row["by_hour"]) == 24  # type: ignore[arg-type]  # a row's values are objects to mypy
    assert "this hour" in call("dlq", "stats", "--topic", "dlq").stdout
    monkeypatch.undo()
    result = call("dlq", "stats", "--topic", "nowhere")
    assert (result.stdout, result.stderr.strip()) == ("", "nothing died in the last 7 days")


def test_export_writes_rows_with_their_bytes(call: Call, tmp_path: Path) -> None:
    lines = tmp_path / "dead.jsonl"
    result = call("dlq", "export", "--to", str(lines), "--topic", "dlq", "--class", "NullPointerException")
    assert (result.exit_code, result.stdout, "2 dead letters written" in result.stderr) == (0, "", True)
    written = {row["original_offset"]: row for row in map(json.loads, lines.read_text(encoding="utf-8").splitlines())}
    assert base64.b64decode(written[1]["value"]) == HOSTILE
    assert base64.b64decode(written[0]["headers"][0]["value"]) == b"\x00\xff"

    table = tmp_path / "dead.parquet"
    assert call("dlq", "export", "--to", str(table), "--topic", "dlq").exit_code == 0
    read = {row["original_offset"]: row for row in pq.read_table(table).to_pylist()}
    assert [read[number]["value"] for number in range(3)] == [b'{"order": 17, "why": [1, 2]}', HOSTILE, None]
    assert read[1]["dead_at"].isoformat() == str(written[1]["dead_at"]).replace(".000+", "+")

    for name in ("empty.jsonl", "empty.parquet"):
        assert "0 dead letters written" in call("dlq", "export", "--to", str(tmp_path / name), "--topic", "nowhere").stderr
    assert pq.read_table(tmp_path / "empty.parquet").num_rows == 0
    for name, said in (("dead.jsonl", "exists already"), ("dead.csv", "must end with"), ("no/where.jsonl", "No such file")):
        assert said in str(call("dlq", "export", "--to", str(tmp_path / name)).exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dead.jsonl", "dead.parquet", "empty.jsonl", "empty.parquet"]


def test_waiting_lists_what_will_be_sent(call: Call) -> None:
    (row,) = rows(call("waiting", "list", "--topic", "dlq", "--where", "error_class = 'a.B'", "--format", "json"))
    assert (row["message_id"], row["state"]) == ("billing:dlq/0/99", "waiting")
    assert "billing:dlq/0/99" in call("waiting", "list", "--topic", "dlq").stdout
    assert call("waiting", "list", "--topic", "nowhere").stderr.strip() == "no waiting message matches"


HOSTILE_ID = "billing:hostile-text/0/0"
SELECTED = ("--topic", "hostile-text")
# each command that tells what others wrote, and its arguments; the formats are the same for all: tests/unit/test_output.py
TELLING: list[tuple[str, tuple[str, ...]]] = [
    ("explain", (HOSTILE_ID,)),
    ("explain", (TERMINAL,)),
    ("dlq show", (HOSTILE_ID,)),
    ("dlq show", (HOSTILE_ID, "--format", "json")),
    ("dlq list", SELECTED),
    ("dlq groups", SELECTED),
    ("dlq stats", SELECTED),
    ("dlq related", (HOSTILE_ID,)),
    ("dlq export", (*SELECTED, "--to", "forged\x1b[2J\x07\r\n\u202e.jsonl")),
    ("dlq discard", (*SELECTED, "--reason", TERMINAL, "--dry-run")),
    ("waiting list", SELECTED),
    ("sql", ("select *, 1 as `\x1b[2J` from dead_letters where original_topic = 'hostile-text'", "--format", "csv")),
    ("classify", ("--class", TERMINAL, "--message", TERMINAL, "--header", f"{TERMINAL}={TERMINAL}")),
    ("policy try", (TERMINAL,)),
    ("status", ()),
]
# they list what they are about as `dlq discard` does, or tell nothing at all of it
LIKE_DISCARD = {f"dlq {what}" for what in ("redrive", "restore", "note", "purge", "triage", "pause", "resume", "stop")}
LIKE_DISCARD |= {"waiting send-now", "waiting cancel", "sequences release", "sequences skip"}
# tests/unit/test_dlq.py tries their tables
TABLES = {"sequences list", "sequences show"}
# needs topics; what it finds in them is tried by tests/unit/test_verify.py
NEEDS_KAFKA = {"verify"}
# nothing foreign but in their log lines and errors: tests/unit/test_output.py, which tries what `check` finds, too
LOGGING = {"init", "run", "tick", "check", "maintain", "demo", "broker", "dagster"}


def commands(group: Any, *before: str) -> set[str]:
    """The names of all commands of a group, and of the groups in it."""
    if not hasattr(group, "commands"):
        return {" ".join(before)}
    return {name for word, command in group.commands.items() for name in commands(command, *before, word)}


def test_each_command_is_tried_with_hostile_text_or_is_listed_as_one_that_need_not_be() -> None:
    assert {command for command, _ in TELLING} | LIKE_DISCARD | TABLES | NEEDS_KAFKA | LOGGING == commands(get_command(app))


@pytest.mark.long
@pytest.mark.usefixtures("sound_seeds")
@pytest.mark.slow
def test_no_command_tells_a_terminal_anything_but_letters(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = report("hostile-text", 0, error=TERMINAL, key=TERMINAL.encode(), value=TERMINAL.encode())
    said = [(name, TERMINAL.encode() if name == "redrive-error-message" else value) for name, value in foreign.headers or ()]
    stack = ("redrive-error-stack", TERMINAL.encode())
    hostile = foreign.but(headers=(("x-" + TERMINAL, TERMINAL.encode()), *said, stack, ("redrive-error-kind", b"fatal")))
    home.append_reports(report("hostile-text", 2, error=TERMINAL))
    die(home, hostile, hostile.but(headers=report("hostile-text", 1, error="KeyError").headers))
    settings = load_settings(home=home.path, project=PROJECT)
    write_status(settings.status_file, Status("stopped", 1, TERMINAL, 1, 1, "now", 1, 1, "now", None, trouble={TERMINAL: TERMINAL}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("orchestration.clock.wall_clock", lambda: home.now)
    told = {}
    for command, arguments in TELLING:
        monkeypatch.setattr("sys.argv", ["redrive", *command.split(), *arguments, "--home", str(home.path)])
        with pytest.raises(SystemExit):
            main()
        told[command, arguments] = "".join(capsys.readouterr())
    settings.status_file.unlink()
    assert [call for call, text in told.items() if not ("forged" in text or "hostile-text" in text)] == []
    assert [call for call, text in told.items() if not is_safe(text)] == []


@pytest.mark.parametrize(
    "arguments",
    [
        *((*command, "--topic", "^(") for command in (("dlq", "list"), ("dlq", "groups"), ("dlq", "stats"), ("waiting", "list"))),
        ("dlq", "list", "--class", "^["),
        ("dlq", "discard", "--group", "^a{2,1}", "--reason", "why", "--dry-run"),
        ("sql", "select 'a' rlike '^('"),
        ("sql", "select count(*) from decisions where original_topic rlike concat('^', '(', substr(original_topic, 1, 0))"),
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("sound_seeds")
def test_a_wrong_regular_expression_is_a_line(call: Call, arguments: tuple[str, ...]) -> None:
    result = call(*arguments)
    assert getattr(result.exception, "exit_code", None) == 2, result.exception
    said = str(result.exception)
    assert "\n" not in said
    assert "at org.apache" not in said
    if arguments[0] != "sql":
        assert "is not a regular expression" in said


@pytest.mark.usefixtures("sound_seeds")
def test_each_command_sends_its_request_and_the_list_of_what_its_options_select(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, str, str | None, set[str]]] = []

    def send(_: Settings, request: CommandRequest, targets: Sequence[Target] = (), advance: object = None) -> str:
        sent.append((request.what, request.reason, request.ticket, {one.message_id for one in targets}))
        return "the id of the command"

    monkeypatch.setattr("orchestration.operators.sending.send", send)
    monkeypatch.setenv("REDRIVE_KAFKA__BOOTSTRAP_SERVERS", "nowhere:1")
    opened, discarded = {"billing:dlq/0/0", "billing:dlq/0/1", "shipping:dlq/0/2"}, {"billing:dlq/0/4"}
    # a note is of open dead letters unless --state says otherwise; `purge --yes` doesn't ask
    asked = {
        "redrive": ((), opened),
        "discard": (("--class", "^java[.]lang[.]Class"), {"shipping:dlq/0/2"}),
        "restore": ((), discarded),
        "note": (("--state", "all", "--group", "billing"), {f"billing:dlq/0/{offset}" for offset in (0, 1, 3, 4)}),
        "purge": (("--yes",), discarded),
    }
    for what, (options, _) in asked.items():
        result = call("dlq", what, "--topic", "dlq", *options, "--reason", f"{what} it", "--ticket", "T-1")
        assert result.exception is None, result.exception
        assert result.stdout.strip() == "the id of the command"
    assert sent == [(what, f"{what} it", "T-1", listed) for what, (_, listed) in asked.items()]


def test_a_home_without_tables_says_how_they_are_made(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestration.operators.dead_letters.schema", lambda _: "nowhere")
    result = CliRunner().invoke(app, ["dlq", "list", "--home", str(home.path)])
    assert isinstance(result.exception, DlqError)
    assert "there are no tables yet" in str(result.exception)
