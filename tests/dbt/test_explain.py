"""What people ask the rules: the history of a message, which rule would match, what a policy means. The answers are those of the loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestration.answers.asking import Asking
from orchestration.rules.check import run_checks
from orchestration.rules.explain import in_words
from orchestration.rules.rulebook import Error, ExplainError, Rulebook
from orchestration.settings import Settings, load_settings
from orchestration.tables.dbt import DbtError
from tests.dbt.harness import PROJECT, Home, Report, Result, failed_again, report

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def settings(home: Home) -> Settings:
    return load_settings(home=home.path, seeds=home.path / "seeds", project=PROJECT)


@pytest.fixture(scope="module")
def rulebook(settings: Settings) -> Rulebook:
    return Rulebook(settings)


def _decided(home: Home, reported: Report) -> str:
    """Decides about a report; returns the id of its message."""
    (input_id,) = home.append_reports(reported)
    home.decide()
    return str(home.decisions()[input_id]["message_id"])


def test_a_message_s_life_is_told_in_order(home: Home, rulebook: Rulebook) -> None:
    message = _decided(home, report("told", 1, error="a.B"))
    (first,) = (row for row in home.decisions().values() if row["message_id"] == message)
    home.append_results(Result(first, offset=900))
    home.later(seconds=5)
    _decided(home, failed_again(first, 900, error="java.lang.NullPointerException"))
    rows = rulebook.history_of(message)
    assert [(row["what"], row["decision"], row["attempt"]) for row in rows] == [
        ("decided", "retry", 1),
        ("sent", "retry", 1),
        ("decided", "dead_letter", 2),
    ]
    assert rows[0]["base_delay_ms"] == 1000
    text = "\n".join(what for _, what in in_words(rows))
    assert "attempt 1 of 5: a.B: boo" in text
    assert "retriable, by default: retriable" in text
    assert f"= {first['delay_ms']} ms by default: exponential(initial=1s, factor=2, max=60s, jitter=0.3, attempts=5)" in text
    assert "sent to told-billing-retry/0/900" in text
    assert "fatal, by error_rules: java.lang.NullPointerException, which matched java.lang.NullPointerException" in text
    assert "dead_letter (fatal) to told.dlq" in text
    assert "the rules have changed" not in text


def test_what_was_passed_over_is_told(home: Home, rulebook: Rulebook) -> None:
    message = _decided(home, report("order", 4711, error="a.B"))
    text = [what for _, what in in_words(rulebook.history_of(message))]
    assert "fatal, by error_rules: a.B for topic order, which matched a.B" in text
    assert "not by error_rules: a.B, message late for topic order: its message, code or header doesn't match" in text


@pytest.mark.slow
def test_rules_that_changed_since_are_told(home: Home, rulebook: Rulebook, seeds: Path) -> None:
    message = _decided(home, report("since", 1))
    assert not any("the rules have changed since" in what for _, what in in_words(rulebook.history_of(message)))
    path = seeds / "retry_policies.csv"
    before = path.read_bytes()
    path.write_bytes(before + b"another,none\n")
    home.load_rules()
    assert any("the rules have changed since" in what for _, what in in_words(rulebook.history_of(message)))
    path.write_bytes(before)
    home.load_rules()
    assert not any("the rules have changed since" in what for _, what in in_words(rulebook.history_of(message)))


def test_a_message_that_nobody_knows(rulebook: Rulebook) -> None:
    with pytest.raises(ExplainError, match='no message is called "it\'s; --"'):
        rulebook.history_of("it's; --")


@pytest.mark.slow
def test_the_rules_say_of_an_error_what_the_decide_step_would_say(rulebook: Rulebook) -> None:
    verdict = rulebook.classify(Error("a.B", "was late", topic="order", group="billing"))
    assert (verdict.kind, verdict.rule) == ("quota", "error_rules: a.B, message late for topic order")
    verdict = rulebook.classify(Error("a.B", "x", topic="order", group="billing"))
    assert verdict.passed_over == (
        "error_rules: a.B, message late for topic order",
        "error_rules: message ^code 5[0-9]+$ for topic order",
    )
    verdict = rulebook.classify(Error(None, None, "x.X: y\nCaused by: java.lang.NullPointerException: z\n", topic="any"))
    assert (verdict.kind, verdict.causes[-1]) == ("fatal", ("java.lang.NullPointerException", "z"))
    verdict = rulebook.classify(Error("c.C", code="10", headers={"status": "200"}, topic="codes"))
    assert verdict.rule == "error_rules: code MSG_SIZE_TOO_LARGE for topic codes"
    assert rulebook.classify(Error()).rule == "default: retriable"


def test_a_policy_s_schedule(rulebook: Rulebook) -> None:
    schedule = rulebook.schedule_of("exponential(attempts=5)", 12)
    assert [(wait.failure, wait.least_ms, wait.most_ms) for wait in schedule.waits] == [
        (1, 700, 1300),
        (2, 1400, 2600),
        (3, 2800, 5200),
        (4, 5600, 10400),
    ]
    assert (schedule.waits[-1].total_least_ms, schedule.waits[-1].total_most_ms) == (10500, 19500)
    assert [wait.least_ms for wait in rulebook.schedule_of("fixed(10s, max_elapsed=35s)", 12).waits] == [10_000] * 3
    assert rulebook.schedule_of("none", 12).waits == ()
    with pytest.raises(ExplainError, match="'faktor=2': exponential takes no faktor; did you mean factor"):
        rulebook.schedule_of("exponential(faktor=2)", 12)


def test_check_names_the_file_the_line_and_the_clause(settings: Settings, tmp_path: Path) -> None:
    for path in (PROJECT / "dbt_project" / "seeds").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with (tmp_path / "retry_policies.csv").open("a") as file:
        file.write('late,"fixed(5s, max_elapsed=1h)"\nbroken,"fixed(5s x 3, 15 x 5)"\n')
    with (tmp_path / "routes.csv").open("a") as file:
        file.write("bills,*,*,late,default,{topic}-retry,{topic}.dlq,,\nothers,*,*,default,late,{topic}-retry,{topic}.dlq,,\n")
    with (tmp_path / "error_rules.csv").open("a") as file:
        file.write("only.Here,,,,fatal,*,*,*,\nonly.Here,,,,blocking,*,*,*,\n")
    findings = run_checks(Asking(settings.model_copy(update={"seeds": tmp_path})), create=False)
    lines = {name: len((tmp_path / name).read_text().splitlines()) for name in ("retry_policies.csv", "error_rules.csv", "routes.csv")}
    misused, bad = (finding for finding in findings if finding.what == "seeds" and not finding.ok)
    assert f"{tmp_path / 'routes.csv'}:{lines['routes.csv']}: publish_policy is 'late', which has max_elapsed" in misused.found
    assert f"{tmp_path / 'retry_policies.csv'}:{lines['retry_policies.csv']}: " in bad.found
    assert "'15 x 5': lacks a unit: 15s" in bad.found
    warnings = [finding.found for finding in findings if finding.warns]
    assert any(
        f"{tmp_path / 'error_rules.csv'}:{lines['error_rules.csv']}: only.Here is blocking here and fatal" in said for said in warnings
    )


@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [
        pytest.param(b"factor=2", b"faktor=2", "the policy default cannot be read: faktor=2 is not understood", id="a policy in use"),
        pytest.param(
            b"policy,definition\n",
            b"policy,definition\nunused,often\n",
            "the policy unused cannot be read: its form is unknown, or clauses are missing: often",
            id="a policy that no route names",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            b'jitter=0.3)"',
            b'jitter=0.3, on_exhausted=drop)"',
            "the policy publish has on_exhausted=drop, and is the publish_policy of a route",
            id="a policy for publishing that drops",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_policy_that_cannot_be_read_leaves_the_old_rules_in_force(
    home: Home, seeds: Path, written: bytes, instead: bytes, said: str
) -> None:
    path = seeds / "retry_policies.csv"
    (rules,) = home.read("rules")
    path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n").replace(written, instead))
    with pytest.raises(DbtError, match=said):
        home.load_rules()
    assert home.read("rules") == [rules]
