"""Policies: what a text means, that the SQL and an independent model in Python agree about thousands of them, and what delays promise."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyspark.sql import Row

from orchestration.rules.policies import objections
from tests.dbt.harness import Home
from tests.dbt.policy_model import NotUnderstood, Policy, broken_policy, delay_ms, random_policy, read_policy

TEXTS = 2_000
FAILURES = (1, 2, 3, 4, 5, 6, 7, 10, 20, 100, 1_000, 2**31 - 1)


@dataclass(frozen=True)
class Case:
    """A policy, how long its first failures wait before jitter, in milliseconds, and how often processing is tried."""

    text: str
    delays: tuple[float, ...]
    max_attempts: int | None


CASES = [
    Case("exponential(initial=1s, factor=2, max=60s, jitter=0.3, attempts=5)", (1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000), 5),
    Case("exponential", (1000, 2000, 4000, 8000, 16000, 32000, 60000), None),
    Case("ExponentialRetryPolicy(1,60,2)", (1000, 2000, 4000, 8000, 16000, 32000, 60000), None),
    Case("LimitedExponentialRetryPolicy(1,60,2,120)", (1000, 2000, 4000, 8000, 16000, 32000, 60000), 121),
    Case("FixedDelayRetryPolicy(5000x3, 15000x5, 60000x10, 120000x15)", (5000, 5000, 5000, 15000, 15000, 15000, 15000, 15000, 60000), 34),
    Case("fixed(10s x 5)", (10_000,) * 5, 6),
    Case("fixed(10s)", (10_000,) * 7, None),
    Case("linear(initial=1s, increment=500ms, max=2s)", (1000, 1500, 2000, 2000), None),
    Case("none", (), 1),
    Case("exponential(attempts=0)", (), 1),
    Case("LimitedExponentialRetryPolicy(1,60,2,0)", (), 1),
]

NOT_UNDERSTOOD = {
    "exponential(initial=1s, faktor=2)": "faktor=2",
    "exponential(initial=1, factor=2)": "initial=1",
    "exponential(initial=1s, initial=2s)": "initial=2s",
    "exponential(factor=0.5)": "factor=0.5",
    "exponential(jitter=1)": "jitter=1",
    "exponential(attempts=-1)": "attempts=-1",
    "fixed(5s x 0)": "5s x 0",
    "exponential(max=2 years)": "max=2 years",
    "exponential(on_exhausted=forget)": "on_exhausted=forget",
    "exponential(1s, 2s)": "1s",
    "exponential(initial=1s,)": "",
    "exponential (initial=1s) now": "exponential (initial=1s) now",
    "ExponentialRetryPolicy(1s, 60s, 2)": "1s",
    "linear(factor=2)": "factor=2",
    "fixed(5s, 10s x 3)": "5s",
    "fixed()": "fixed()",
    "none(attempts=3)": "attempts=3",
    "FixedDelayRetryPolicy(5000)": "5000",
    "ExponentialRetryPolicy(1,60)": "ExponentialRetryPolicy(1,60)",
    "LimitedExponentialRetryPolicy(1,60,2,many)": "many",
    "sometimes(10s)": "sometimes(10s)",
    "": "",
}


@pytest.fixture(autouse=True)
def policies_to_read(home: Home) -> Iterator[None]:
    """Takes the view away again: other tests look at what there is."""
    yield
    home.spark.catalog.dropTempView("policies_to_read")


def _read(home: Home, texts: list[str]) -> list[Row]:
    """What the SQL makes of each text, in their order."""
    return home.spark.sql(f"select * from ({_reading(home, texts)}) order by policy").collect()


def _delays(home: Home, texts: list[str], failures: tuple[int, ...]) -> dict[tuple[int, int], float]:
    """Delay of each failure by each policy, before jitter, in milliseconds, by place of the text and number of the failure."""
    read = _reading(home, texts)
    delay = home.compiled("{{ backoff_delay_ms('failures', 'read') }}")
    rows = home.spark.sql(
        f"select policy, failures, {delay} as delay_ms from (select *, explode(array{failures}) as failures from ({read})) as read"
    ).collect()
    return {(row["policy"], row["failures"]): row["delay_ms"] for row in rows}


def _reading(home: Home, texts: list[str]) -> str:
    """The query that takes these texts apart; a policy's name is its place."""
    home.spark.createDataFrame(list(enumerate(texts)), "policy int, definition string").createOrReplaceTempView("policies_to_read")
    return home.compiled("{{ read_policies('policies_to_read') }}")


def test_what_policies_mean(home: Home) -> None:
    texts = [case.text for case in CASES]
    read = _read(home, texts)
    delays = _delays(home, texts, tuple(range(1, 10)))
    for place, case in enumerate(CASES):
        assert read[place]["not_understood"] is None, case
        assert read[place]["max_attempts"] == case.max_attempts, case
        assert tuple(delays[place, number] for number in range(1, len(case.delays) + 1)) == case.delays, case


def test_the_first_clause_that_cannot_be_read_is_named(home: Home) -> None:
    read = _read(home, list(NOT_UNDERSTOOD))
    assert {row["definition"]: row["not_understood"] for row in read} == NOT_UNDERSTOOD


def test_what_the_sql_refuses_is_explained_clause_by_clause() -> None:
    unexplained = [text for text in NOT_UNDERSTOOD if not list(objections(text))]
    assert unexplained == []


def test_the_sql_reads_what_an_independent_model_reads(home: Home) -> None:
    chance = random.Random(20260301)
    texts = [random_policy(chance) for _ in range(TEXTS)]
    models = [read_policy(text) for text in texts]
    for row, model, text in zip(_read(home, texts), models, texts, strict=True):
        assert row["not_understood"] is None, text
        said = {
            name: row[name] for name in ("jitter", "max_attempts", "max_elapsed_ms", "on_exhausted", "quota_multiplier", "backpressure_ms")
        }
        assert said == {name: getattr(model, name) for name in said}, text
    delays = _delays(home, texts, FAILURES)
    for (place, failures), delay in delays.items():
        if _is_retried(models[place], failures):
            assert delay == pytest.approx(delay_ms(models[place], failures), rel=1e-9), (texts[place], failures)


def test_the_sql_refuses_what_an_independent_model_refuses(home: Home) -> None:
    chance = random.Random(20260302)
    texts = [broken_policy(chance) for _ in range(TEXTS)]
    for row, text in zip(_read(home, texts), texts, strict=True):
        with pytest.raises(NotUnderstood) as error:
            read_policy(text)
        assert row["not_understood"] == error.value.clause, text


def test_delays_never_fall_and_never_exceed_their_cap(home: Home) -> None:
    chance = random.Random(20260303)
    texts = [text for text in (random_policy(chance) for _ in range(TEXTS)) if read_policy(text).steps == ()]
    read = _read(home, texts)
    delays = _delays(home, texts, FAILURES)
    for place, row in enumerate(read):
        waits = [delays[place, number] for number in FAILURES]
        assert waits == sorted(waits), texts[place]
        assert waits[0] >= 0, texts[place]
        assert waits[-1] <= row["max_ms"], texts[place]


def _is_retried(model: Policy, failures: int) -> bool:
    return model.max_attempts is None or failures < model.max_attempts
