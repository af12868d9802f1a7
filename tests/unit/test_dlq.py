"""What selects and shows dead letters, where no table is needed: conditions, times, payloads, widths, and what the shell completes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestration.cli import completion
from orchestration.operators import rendering, selections
from orchestration.operators.rendering import bars, header_lines, member_table, payload_lines, sequence_table, waiting_table
from orchestration.operators.selections import DlqError, Selection, parse_since
from orchestration.tables.query import Rows

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("selection", "condition"),
    [
        (Selection(), "true"),
        (Selection(state="open"), "state = 'open'"),
        (Selection(topic="orders"), "(original_topic = 'orders')"),
        (Selection(topic="^orders[.]"), "original_topic rlike '^orders[.]'"),
        (Selection(error_class="Boo"), "(error_class = 'Boo' or endswith(error_class, '.Boo') or endswith(error_class, '$Boo'))"),
        (Selection(group="it's \\"), "(consumer_group = 'it\\'s \\\\')"),
        (Selection(ids=("a", "b'")), "message_id in ('a', 'b\\'')"),
        (Selection(since=NOW, fingerprint="f"), "fingerprint = 'f' and dead_at >= timestamp_micros(1772366400000000)"),
        (Selection(state="open", where="attempts > 3 -- so"), "state = 'open' and (attempts > 3 -- so\n)"),
    ],
)
def test_a_selection_is_one_condition(selection: Selection, condition: str) -> None:
    assert selection.condition() == condition


@pytest.mark.parametrize(
    ("message_id", "offset"),
    [
        ("billing:orders/0/17", 17),
        (":orders/0/0", 0),
        ("a/1/2:orders/10/9223372036854775", 9223372036854775),
        ("billing:orders/0/17~0a1b2c3d", 17),
        ("billing:orders/0/17~0A1B2C3D", None),
        ("billing:orders/0/17\n", None),
        ("billing:orders/0/9999999999999999999", None),
        ("orders", None),
        ("", None),
    ],
)
def test_an_id_says_the_offset(message_id: str, offset: int | None) -> None:
    named = selections.named(message_id)
    assert named.startswith(f"message_id = {selections.literal_text(message_id)}")
    held = f"' and (original_offset = {offset} or original_offset is null)"
    assert named.endswith(held if offset is not None else "'")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", datetime(2026, 3, 1, 11, 58, 30, tzinfo=UTC)),
        ("2h", datetime(2026, 3, 1, 10, tzinfo=UTC)),
        (" 4w ", datetime(2026, 2, 1, 12, tzinfo=UTC)),
        ("2026-02-28T10:00", datetime(2026, 2, 28, 10, tzinfo=UTC)),
        ("2026-02-28 10:00:00+02:00", datetime(2026, 2, 28, 8, tzinfo=UTC)),
    ],
)
def test_since_is_a_span_or_a_time(text: str, moment: datetime) -> None:
    assert parse_since(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "2", "h", "-1h", "999999w", "2026-13-01"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(DlqError, match="is not a time; examples: 90s, 30m, 2h"):
        parse_since(text, NOW)


@pytest.mark.parametrize(
    ("value", "payload_type", "schema_id", "lines"),
    [
        (None, "null", None, []),
        (b"", "empty", None, []),
        (b'{"b": [1, 1.5], "a": "\xc3\xa4"}', "json", None, ["{", '  "b": [', "    1,", "    1.5", "  ],", '  "a": "ä"', "}"]),
        (b'\x00\x00\x00\x00\x2a{"a": 1}', "json", 42, ["{", '  "a": 1', "}"]),
        # what Python would write differently stays as it stands
        (b'{"a": 1, "a": 2}', "json", None, ['{"a": 1, "a": 2}']),
        (b'{"a": 1.10}', "json", None, ['{"a": 1.10}']),
        (b'{"a": 1e999}', "json", None, ['{"a": 1e999}']),
        (b'{"a": "\\u001b[31m\\u202e"}', "json", None, ["{", '  "a": "\\u001b[31m�"', "}"]),
        (b"a\tb\n\x9bc", "text", None, ["a�b", "�c"]),
        (b"\x00\x01AB", "binary", None, [f"0000  {'00 01 41 42':<47}  ..AB"]),
        (b"\x00\x00\x00\x00\x2aA", "avro", 42, [f"0000  {'00 00 00 00 2a 41':<47}  ....*A"]),
    ],
)
def test_a_payload_is_shown_by_its_type(value: bytes | None, payload_type: str, schema_id: int | None, lines: list[str]) -> None:
    assert list(payload_lines(value, payload_type, schema_id)) == lines


def test_a_large_payload_is_cut_and_says_so() -> None:
    assert list(payload_lines(b"x" * 10_000, "text", None))[-1] == "... 2,000 more characters: --payload FILE writes all of it"
    lines = list(payload_lines(b"\xff" * 1_000, "binary", None))
    assert (len(lines), lines[-1]) == (33, "... 488 more bytes: --payload FILE writes all of it")
    assert list(payload_lines(b"[" * 50_000 + b"]" * 50_000, "json", None))[-1].startswith("... 92,000 more")


def test_headers_are_shown_in_their_order_whatever_is_in_them() -> None:
    headers = [("a", b"1"), ("a", None), ("", b""), ("b\x1b", b"\xff\x00"), ("c", b"x\ny")]
    shown = list(header_lines([{"key": key, "value": value} for key, value in headers]))
    assert shown == [("a", "1"), ("a", "null"), ("", ""), ("b�", "0xff00"), ("c", "0x780a79")]
    assert list(header_lines(None)) == []


def test_a_long_header_is_cut_and_shows_it() -> None:
    (text,), (binary,) = (list(header_lines([{"key": "k", "value": value}])) for value in (b"x" * 501, b"\xff" * 65))
    assert text == ("k", "x" * 500 + "…")
    assert binary == ("k", "0x" + "ff" * 64 + "…")
    assert list(header_lines([{"key": "k", "value": b"x" * 500}])) == [("k", "x" * 500)]


def test_counts_are_bars_of_which_none_is_lost() -> None:
    assert bars([0, 1, 100, 50]) == " ▁█▄"
    assert bars([0, 0]) == "  "
    assert bars([]) == ""


ID = f"billing:{'orders.' * 12}eu/17/123456789"

ROW: dict[str, Any] = {
    "message_id": ID,
    "state": "open",
    "dead_at": NOW,
    "last_seen": NOW,
    "next_due": NOW,
    "later_ms": -90_000,
    "is_unusual": True,
    "error_class": "com.acme.billing.NoPriceException",
    "error_message": "[no] price\n\x1b[31m" + "x" * 300,
    "error_pattern": "a" * 200,
    "topics": ["orders"] * 9,
    "relations": ["key", "time"],
    "original_topic": "orders." * 30,
    "attempts": 5,
    "max_attempts": None,
    "fingerprint": "0123456789ab",
    "open": 1,
    "dead": 12_345,
    "died": 12_345,
    "refused": 3,
    "this_hour": 7,
    "usual": 0.5,
    "last_24_hours": 70,
    "last_7_days": 700,
    "by_hour": [*range(24)],
}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("table", ["dead_letter_table", "group_table", "stats_table", "related_table", "waiting_table"])
def test_a_table_fits_its_terminal_and_shortens_no_id(table: str, width: int) -> None:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(getattr(rendering, table)(Rows(tuple(ROW), (tuple(ROW.values()),), more=False)))
    text = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "\x1b" not in text
    if table not in ("group_table", "stats_table"):
        first = lines[0].index("message")
        second = lines[0].index(lines[0].split()[1])
        column = "".join(line[first:second].strip() for line in lines[1:])
        assert column == ID
    else:
        assert "0123456789ab" in text or "unusual" in text


@pytest.mark.parametrize(("state", "purpose"), [("waiting", "retry"), ("held", "retry, held"), ("dead_letter_pending", "dead letter")])
def test_a_waiting_message_says_what_for(state: str, purpose: str) -> None:
    row = {**ROW, "message_id": "billing:orders/0/1", "state": state, "max_attempts": 5}
    console = Console(width=120, file=io.StringIO(), force_terminal=False)
    console.print(waiting_table(Rows(tuple(row), (tuple(row.values()),), more=False)))
    assert f" {purpose}  " in console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO


COMPLETING = """
import sys
from orchestration.cli.main import main
sys.argv = ["redrive"]
try:
    main()
finally:
    assert "pyspark" not in sys.modules
"""


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("dlq redrive --r", ["--reason", "--rate"]),
        ("dlq list --state re", ["redriven", "recovered", "refused"]),
        ("dlq list --class com.", ["com.acme.A"]),
        ("dlq redrive --to o", ["original"]),
        ("dlq redrive --list 0", ["0123456789ab"]),
        ("dlq redrive m", ["m1"]),
    ],
)
def test_the_shell_completes_options_and_what_is_known_without_asking_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, offered: list[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    completion.remember(tmp_path, Rows(("message_id", "error_class"), (("m1", "com.acme.A"),), more=False))
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "0123456789ab.jsonl").touch()
    words = f"redrive {typed}"
    asked = {"_REDRIVE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", COMPLETING],
        env={**os.environ, **asked, "REDRIVE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (offered, "")


def test_what_was_shown_is_remembered_and_what_is_broken_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert completion.recall(tmp_path) == {}
    completion.remember(
        tmp_path, Rows(("message_id", "error_class", "attempts"), (("m1", "E", 1), ("m2", None, 2), ("m\x1b", "E", 3)), more=False)
    )
    completion.remember(tmp_path, Rows(("message_id",), (("m3",), ("m1",)), more=False))
    assert completion.recall(tmp_path) == {"message_id": ["m3", "m1", "m2"], "error_class": ["E"]}
    for broken in ("", "[]", '{"message_id": 7}', "\xff"):
        completion.remembered_in(tmp_path).write_text(broken, encoding="latin-1")
        assert completion.recall(tmp_path) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nope")
    completion.remember(tmp_path, Rows(("message_id",), (("m",),), more=False))
    assert completion.recall(tmp_path) == {}


def test_sequences_with_hostile_names_are_told_in_letters() -> None:
    hostile = "g:t/0/\x1b[2J\x07\u202e"
    sequences = ("sequence_key", "state", "held_since", "failed_message", "following", "sent", "dead")
    members = ("message_id", "state", "attempts", "next_due", "error_class", "reason")
    for table in (
        sequence_table(Rows(sequences, ((hostile, "dead", None, hostile, 1, 0, 0),), more=False)),
        member_table(Rows(members, ((hostile, "waiting", 1, None, hostile, "retriable"),), more=False)),
    ):
        told = io.StringIO()
        Console(file=told, width=200).print(table)
        assert "g:t/0/" in told.getvalue()
        assert not {"\x1b", "\x07", "\u202e"} & set(told.getvalue())
