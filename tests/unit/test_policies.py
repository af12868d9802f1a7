"""Why a policy can't be read, in words: each clause its own, with the nearest that is right."""

from __future__ import annotations

import pytest

from orchestration.rules.policies import FORMS, objections, why_not


@pytest.mark.parametrize(
    "definition", [*FORMS.values(), "fixed(5s)", "none(on_exhausted=drop)", " Exponential ( initial = 1.5 m , JITTER=0.3 )"]
)
def test_nothing_is_said_against_what_is_right(definition: str) -> None:
    assert list(objections(definition)) == []


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ("exponental(initial=1s)", ["did you mean exponential(initial=1s, factor=2, max=60s)?"]),
        ("sometimes(10s)", ["is none of the forms of a policy: There are exponential("]),
        ("exponential(initial=1s) now", ["is none of the forms"]),
        ("", ["is none of the forms"]),
        (
            "exponential(initial=1, faktor=2)",
            ["'initial=1': lacks a unit: 1s", "'faktor=2': exponential takes no faktor; did you mean factor?"],
        ),
        ("exponential(max=2 years)", ["'max=2 years': must be a duration"]),
        ("exponential(initial=1s, initial=2s)", ["'initial=2s': initial is given twice"]),
        ("exponential(factor=0.5, jitter=1)", ["'factor=0.5': must be a number from 1 to 1000", "'jitter=1': must be a number from 0"]),
        ("exponential(attempts=many)", ["must be a whole number"]),
        ("exponential(on_exhausted=forget)", ["must be dead_letter or drop"]),
        ("exponential(1s)", ["'1s': has no name: exponential takes initial, factor, max"]),
        ("exponential(initial=1s,)", ["is empty: a comma too many"]),
        ("fixed(5s x 3, 15 x 5)", ["'15 x 5': lacks a unit: 15s"]),
        ("fixed(5s, 10s x 3)", ["'5s': only the last step"]),
        ("fixed(5s x 0)", ["must be 1 or more"]),
        ("fixed()", ["something is missing that has no default: fixed(5s x 3, 15s x 5)"]),
        ("none(attempts=3)", ["none takes no attempts; it takes on_exhausted"]),
        ("ExponentialRetryPolicy(1s, 60, 2)", ["'1s': must be a number, as in ExponentialRetryPolicy(1, 60, 2)"]),
        ("ExponentialRetryPolicy(1,60)", ["something is missing"]),
        ("LimitedExponentialRetryPolicy(1,60,2,retries=3)", ["'retries=3': is given by its place", "something is missing"]),
        ("FixedDelayRetryPolicy(5000)", ["must be milliseconds x retries"]),
    ],
)
def test_each_clause_has_its_own_error(definition: str, said: list[str]) -> None:
    found = list(objections(definition))
    assert len(found) == len(said), found
    for text, part in zip(found, said, strict=True):
        assert part in text


def test_what_only_the_sql_knows_is_told_as_it_says_it() -> None:
    assert why_not("exponential(initial=1s)", "initial=1s").startswith("'initial=1s' is not understood in")
