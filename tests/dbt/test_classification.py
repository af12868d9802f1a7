"""Classification: which rule decides about an error, as a table of cases through all models, with the project's rules and others."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable

import pytest
from pyspark.sql import Row

from reporter.reports import stack_of
from tests.dbt.classification_cases import ASKED_ONCE, CASES, JAVA_STACK, PYTHON_STACK, TIMEOUT
from tests.dbt.harness import PROJECT, Home, Report
from tests.dbt.kafka_error_cases import KAFKA_CASES, KAFKA_CODES
from tests.deep_errors import deep_error


def _at(reported: Report, place: int) -> Report:
    """The same report, of another record: those of one topic are different messages."""
    return reported.but(
        headers=tuple((name, str(place).encode() if name == "redrive-original-offset" else value) for name, value in reported.headers or ())
    )


@pytest.fixture(scope="module")
def decided(home: Home) -> list[Row]:
    """All cases, in one decide run."""
    causes = home.append_reports(*(_at(case.report, place) for place, case in enumerate([*CASES, *KAFKA_CASES])))
    home.decide()
    decisions = home.decisions()
    return [decisions[cause] for cause in causes]


@pytest.mark.parametrize("place", range(len(CASES)), ids=[case.name for case in CASES])
def test_which_rule_decides(place: int, decided: list[Row]) -> None:
    case, row = CASES[place], decided[place]
    assert (row["error_kind"], row["rule"].removeprefix("error_rules: "), row["matched"]) == (case.kind, case.rule, case.matched)


def test_what_asks_for_no_class_is_passed_over_once_not_for_each_cause(decided: list[Row]) -> None:
    passed_over = decided[[case.name for case in CASES].index(ASKED_ONCE)]["passed_over"]
    assert "error_rules: header status=429 for topic codes" in passed_over
    assert len(passed_over) == len(set(passed_over))


def test_all_of_the_table_of_publish_errors_is_among_the_cases() -> None:
    with (PROJECT / "dbt_project" / "seeds" / "publish_error_kinds.csv").open(newline="", encoding="utf-8") as file:
        rows = [(row["error_kind"], (row["code"], row["name"], *row["also_called"].split())) for row in csv.DictReader(file)]
    assert sorted(rows) == sorted(KAFKA_CODES)


def test_every_kafka_error_has_the_kind_that_the_table_gives_it(decided: list[Row]) -> None:
    """Whatever client reports it, by class, number or name."""
    found = decided[len(CASES) :]
    wrong = [
        (case.name, case.kind, row["error_kind"], row["rule"])
        for case, row in zip(KAFKA_CASES, found, strict=True)
        if row["error_kind"] != case.kind or row["rule"] == "default: retriable"
    ]
    assert wrong == []


def test_causes_are_read_from_headers_and_stacks(home: Home) -> None:
    chain = home.compiled("{{ cause_chain('wrapper', 'error_class', 'message', 'stack') }}")
    cases = [
        ("W", "C", "m", None, [("W", "m"), ("C", "m")]),
        (None, None, None, None, [(None, None)]),
        (None, "java.lang.RuntimeException", "outer", JAVA_STACK, [
            ("java.lang.RuntimeException", "outer"), ("com.acme.Unheard", "middle"), (TIMEOUT, "Read timed out"),
        ]),
        (None, "RuntimeError", "outer", PYTHON_STACK, [
            ("RuntimeError", "outer"), ("acme.Unheard", "no price"), ("TimeoutError", "timed out"),
        ]),
        (None, "A", None, "A\n\tat x\nCaused by: B\nCaused by: C: \n", [("A", None), ("B", None), ("C", None)]),
        (None, "A", "x", "".join(f"Caused by: C{n}: x\n" for n in range(100)), [("A", "x"), *((f"C{n}", "x") for n in range(15))]),
    ]  # fmt: skip
    rows = [(place, *case[:4]) for place, case in enumerate(cases)]
    frame = home.spark.createDataFrame(rows, "place int, wrapper string, error_class string, message string, stack string")
    read = [row["chain"] for row in frame.selectExpr("place", f"{chain} as chain").orderBy("place").collect()]
    assert [[tuple(cause) for cause in causes] for causes in read] == [case[4] for case in cases]


def test_the_first_of_many_causes_is_read_from_what_the_reporter_sends_of_a_long_stack(home: Home) -> None:
    chain = home.compiled("{{ cause_chain('wrapper', 'error_class', 'message', 'stack') }}")
    stack = stack_of(deep_error(100))
    assert len(stack) <= 8_000
    frame = home.spark.createDataFrame(
        [(None, "LookupError", "number 2", stack)], "wrapper string, error_class string, message string, stack string"
    )
    (row,) = frame.selectExpr(f"{chain} as chain").collect()
    assert [tuple(cause) for cause in row["chain"]] == [("LookupError", f"number {number}") for number in (2, 1, 0)]


def test_what_is_read_of_a_hostile_stack_is_bounded(home: Home) -> None:
    chain = home.compiled("{{ cause_chain('wrapper', 'error_class', 'message', 'stack') }}")
    stacks = [
        "Caused by: " * 6_000,
        "a." * 32_000,
        "a" * 65_000,
        "Traceback (most recent call last):\n" * 1_800,
        "Traceback (most recent call last):\n" + "\n" * 60_000,
        "Caused by: " + "a" * 60_000 + ": " + "b" * 5_000,
        "\nCaused by: a: " + "\r" * 60_000,
    ]
    frame = home.spark.createDataFrame(
        [(None, "A", "m", stack) for stack in stacks], "wrapper string, error_class string, message string, stack string"
    )
    for row in frame.selectExpr(f"{chain} as chain").collect():
        assert 1 <= len(row["chain"]) <= 16
        assert all(len(cause["error_class"] or "") <= 256 and len(cause["message"] or "") <= 1024 for cause in row["chain"])


HOSTILE: dict[str, list[Callable[[int], str]]] = {
    "{{ cause_chain('wrapper', 'error_class', 'message', 'text') }}": [
        lambda size: _repeated("Traceback (most recent call last):\n", size),
        lambda size: "Traceback (most recent call last):" + "\n" * size,
        lambda size: _repeated("Traceback (most recent call last):\nE: x\n", size),
        lambda size: "Traceback (most recent call last):\n" + "a." * (size // 2) + "!",
        lambda size: "Traceback (most recent call last):\n" + _repeated("a: b\r", size),
        lambda size: _repeated("Caused by: ", size),
        lambda size: "".join(f"Caused by: C{number:05}: x\n" for number in range(size // 20)),
        lambda size: "A\nCaused by: " + "a." * (size // 2) + "!",
        lambda size: "A" + "\n" * size,
        lambda size: "A: " + _repeated("\rCaused by: a: ", size),
    ],
    "{{ error_pattern('error_class', 'message', 'text') }}": [
        lambda size: "\n" * size,
        lambda size: " \t" * (size // 2),
        lambda size: _repeated("\n at ", size),
        lambda size: "\n at " + "a/" * (size // 2),
        lambda size: "\n at " + "java/" * (size // 5),
        lambda size: _repeated('File "', size),
        lambda size: _repeated('File "a", line 1', size),
        lambda size: 'File "' + "/" * size + '", line 1, in x',
        lambda size: "\n at a$" + "a" * size + "(",
        lambda size: _repeated("Caused by: ", size),
    ],
    "{{ message_pattern('text') }}": [
        *(lambda size, quote=quote: quote * size for quote in "\"'`“”„«»‘’"),
        lambda size: _repeated("„“", size),
        lambda size: "a" * size,
        lambda size: "1" * size,
        lambda size: "1." * (size // 2),
        lambda size: _repeated("0x1 ", size),
        lambda size: _repeated("12345678-1234-", size),
        lambda size: " \n" * (size // 2),
    ],
    "{{ dialect_text(\"struct(cast(text as binary) as bytes, 'last_in_list' as encoding)\") }}": [
        lambda size: "a" * size + ",",
        lambda size: "," * size,
    ],
}  # fmt: skip
"""Text of about a size that an expression of ours might look through again and again."""


def _repeated(text: str, size: int) -> str:
    return text * (size // len(text))


@pytest.mark.slow
@pytest.mark.parametrize("expression", HOSTILE, ids=lambda expression: expression.split("(")[0].strip("{ "))
def test_the_time_for_hostile_texts_grows_with_their_length_not_with_its_square(home: Home, expression: str) -> None:
    """Four times the text takes four times as long; an expression that looks through it again at each place would take 16 times."""
    compiled = home.compiled(expression)

    def seconds(size: int) -> float:
        rows = [(None, "A", "m", text(size)) for text in HOSTILE[expression]]
        frame = home.spark.createDataFrame(rows, "wrapper string, error_class string, message string, text string").coalesce(1).cache()
        frame.count()
        # each text twice, so that starting a query is the smaller part
        query = frame.selectExpr("*", "explode(sequence(1, 2)) as copy").selectExpr(f"sum(hash({compiled})) as sum")
        taken = []
        for _ in range(3):
            began = time.perf_counter()
            query.collect()
            taken.append(time.perf_counter() - began)
        frame.unpersist()
        return min(taken)

    # whatever else this machine does makes some rounds slower; a time that grows with the square is too long in each
    assert min(seconds(128_000) / seconds(32_000) for _ in range(3)) < 8
