"""Regular expressions of the seeds: those that a text can make explode are refused, all others are left alone."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from orchestration.rules import patterns
from orchestration.rules.patterns import objection
from orchestration.rules.seeds import read_seeds

SEEDS = Path(__file__).parents[2] / "dbt_project" / "seeds"
EXPONENTIAL = "can take exponential time"
IN_A_ROW = "repetitions in a row that match the same text"


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("^(a+)+$", EXPONENTIAL),
        ("^(a*)*b", EXPONENTIAL),
        ("^(a|a)*b", EXPONENTIAL),
        ("^(a|ab|b)*c", EXPONENTIAL),
        ("^(?i:(a|A)*)b", EXPONENTIAL),
        ("^(a?b?)*c", EXPONENTIAL),
        ("^(x(?:a?|b?))*c", EXPONENTIAL),
        ("^(a{1,50}){1,50}$", EXPONENTIAL),
        ("^(?:[a-z]+-?)+x", EXPONENTIAL),
        (r"^(\w+\s?)*$", EXPONENTIAL),
        ("^(?=(a+)+$)x", EXPONENTIAL),
        ("^.*a.*b.*c", f"has 3 {IN_A_ROW}"),
        ("^(a+){5}b", f"has 5 {IN_A_ROW}"),
        ("^[0-9]+[0-9]+[0-9]+x", f"has 3 {IN_A_ROW}"),
        ("^a|.*b.*c", f"has 3 {IN_A_ROW}"),
        (r"^(a)\1", "refers back to what a group matched"),
        ("^x{5000}", "is too large to be checked"),
        (f"^{'(' * 250}x{')' * 250}", "is too large to be checked: its groups are nested too deeply"),
        (f"^{'x' * 1000}", "has 1001 characters; 1000 are the most"),
        ("^(", "is not a regular expression: missing )"),
        # Java reads these otherwise than Python
        ("^[a-z&&[^b]]$", "is not a regular expression: Possible"),
        ("^(?P<env>eu|us)-orders", "is not a regular expression for Java: '(?P'"),
        ("^(?#a remark)orders", "is not a regular expression for Java: '(?#'"),
        ("^(?ia:orders)", "is not a regular expression for Java: '(?ia'"),
        ("^x{,3}", "is not a regular expression for Java: '{'"),
        ("^KafkaError{code=", "is not a regular expression for Java: '{'"),
        ("^[a[]", "is not a regular expression for Java: '[a[]'"),
        (r"^[]a[b]", "is not a regular expression for Java: '[]a[b]'"),
        (r"^\U00000041", r"is not a regular expression for Java: '\\U'"),
    ],
)
def test_what_can_explode_is_refused(pattern: str, told: str) -> None:
    said = objection(pattern)
    assert said is not None
    assert told in said


@pytest.mark.parametrize(
    "pattern",
    [
        "^.*",
        "^java[.]io[.]EOF",
        "^FATAL.*timeout",
        "^.*foo.*bar",
        "^(?:[a-z]+[.])+Foo$",
        r"^[a-z]+[.][a-z]+[.][a-z]+[.][A-Z]\w+$",
        "^(?:(?:ab)+c)*d",
        "^(?:a|b)*c",
        "^[^:]*: [^:]*: x.*",
        "^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        "^[0-9]{1,3}[.][0-9]{1,3}[.][0-9]{1,3}[.][0-9]{1,3}$",
        "^a|^b",
        r"^KafkaError\{code=[{}\[]",
        r"^x{2}y{2,}z{2,3}\[a\[",
        "^(?i:A)(?:b)(?=c)",
        # each would keep a check busy for hours if what is repeated were written out
        "^(?:){1000000000}x",
        "^(?:(?=a)){1000000000}x",
        "^(?:(?=.*x)a){500}",
    ],
)
def test_what_cannot_is_left_alone(pattern: str) -> None:
    assert objection(pattern) is None


def test_the_expressions_of_the_projects_own_seeds_are_safe() -> None:
    expressions = [
        cell
        for path in SEEDS.glob("*.csv")
        for row in csv.reader(path.open(newline="", encoding="utf-8"))
        for cell in row
        if cell.startswith("^")
    ]
    assert len(expressions) > 20
    assert {pattern: said for pattern in expressions if (said := objection(pattern))} == {}


def test_an_expression_that_was_checked_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A running loop reads its seeds in each tick."""
    read_seeds(SEEDS)
    checked: list[str] = []
    monkeypatch.setattr(patterns, "_check", lambda *_, **__: checked.append("again"))
    read_seeds(SEEDS)
    assert checked == []
