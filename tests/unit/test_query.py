"""How results are printed: for people, for tools, and for a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from orchestration.output import console
from orchestration.settings import load_settings
from orchestration.tables.query import QueryError, Rows, Tables, list_tables, print_rows
from tests.dbt.harness import PROJECT

LONG = f"billing:{'orders.' * 80}eu/0/17"

FOUND = Rows(
    ("message_id", "at", "value", "counts", "nothing"),
    (
        (LONG, datetime(2026, 3, 1, 12, tzinfo=UTC), b'caf\xc3\xa9, "au lait"', {"a": 1}, None),
        ("two\nlines", None, b"\xff", {}, None),
    ),
    more=False,
)
NONE = Rows(("message_id",), (), more=False)


def test_json_is_one_array_that_tools_can_parse(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(FOUND, "json")
    first, second = json.loads(capsys.readouterr().out)
    assert first["message_id"] == LONG
    assert (first["value"], first["counts"], first["nothing"]) == ('café, "au lait"', {"a": 1}, None)
    assert second["value"] == {"base64": "/w=="}
    print_rows(NONE, "json")
    assert json.loads(capsys.readouterr().out) == []


def test_two_columns_of_one_name_are_refused_where_one_would_be_lost(capsys: pytest.CaptureFixture[str]) -> None:
    rows = Rows(("state", "n", "state"), (("sent", 1, "open"),), more=False)
    for output in ("json", "jsonl"):
        with pytest.raises(QueryError, match=r"two columns are called state, .* rename one with `as`"):
            print_rows(rows, output)
    print_rows(rows, "csv")
    assert capsys.readouterr().out == "state,n,state\nsent,1,open\n"


def test_values_that_json_has_no_form_for_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    values = (date(2026, 3, 1), timedelta(seconds=90), Decimal("0.50"), float("nan"), [date(2026, 3, 1)], 1.5, True)
    rows = Rows(tuple("abcdefg"), (values,), more=False)
    print_rows(rows, "jsonl")
    text = {"a": "2026-03-01", "b": "0:01:30", "c": "0.50", "d": "nan", "e": ["2026-03-01"], "f": 1.5, "g": True}
    assert json.loads(capsys.readouterr().out) == text
    print_rows(rows, "csv")
    print_rows(rows, "table", console())
    assert capsys.readouterr().out.count("0:01:30") == 2


def test_jsonl_is_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(FOUND, "jsonl")
    assert [json.loads(line)["message_id"] for line in capsys.readouterr().out.splitlines()] == [LONG, "two\nlines"]
    print_rows(NONE, "jsonl")
    assert capsys.readouterr().out == ""


def test_csv_has_a_header_line_and_one_cell_for_each_value(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(FOUND, "csv")
    header, first, second = csv.reader(io.StringIO(capsys.readouterr().out))
    assert header == list(FOUND.columns)
    assert (first[0], first[2], first[3], first[4]) == (LONG, 'café, "au lait"', '{"a": 1}', "")
    assert (second[0], second[1]) == ("two\nlines", "")
    print_rows(NONE, "csv")
    assert capsys.readouterr().out == "message_id\n"


def test_a_table_that_goes_into_a_pipe_shortens_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_rows(FOUND, "table", console())
    assert LONG in capsys.readouterr().out


def test_what_reports_say_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    said = (r"bad pattern \[/b] at", r"x \[red]hidden\[bold] y", "[link]", "[/]")
    print_rows(Rows(("a[/b]", "headers_by_name[x-tenant]", "c", "[bold]d"), (said,), more=False), "table", console())
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["a[/b]", "headers_by_name[x-tenant]", "c", "[bold]d"]
    assert all(cell in row for cell in said)


def test_what_can_be_asked_is_listed_with_what_a_row_of_it_is() -> None:
    found = {name: (group, described) for name, group, described in list_tables(load_settings(project=PROJECT)).rows}
    assert found["messages"] == ("marts", "The state of every message whose failure was ever reported. Grain: one row per message.")
    assert [found[name][0] for name in ("dead_letters", "events", "routes")] == ["marts", "ledgers", "rules"]
    # a step between two models, which is no table
    assert "last_decisions" not in found
    assert all("Grain:" in what or of == "rules" for of, what in found.values())


@pytest.mark.parametrize(
    ("statement", "is_one"),
    [
        ("select 1;", True),
        ("  (select 1) union (select 2)", True),
        ("-- first; then\nselect 1", True),
        ("/* a; b */ with a as (select 1) select * from a", True),
        ("""select 'a;b', "c;d", 'it''s; e', 'f\\'; g'""", True),
        ("select 1; select 2", False),
        ("select '--'; delete from ticks", False),
        ("""select "it's"; delete from ticks""", False),
        ("delete from ticks", False),
        ("", False),
    ],
)
def test_one_select_is_known_by_what_it_says_not_by_its_texts(statement: str, is_one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tables, "missing", lambda _: "it is one, and nothing is there to be read")
    with pytest.raises(QueryError, match="it is one" if is_one else "give one select statement"):
        Tables(load_settings()).select(statement, 10)
