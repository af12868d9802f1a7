"""The table of reasons: what the SQL decides by, what the loop counts by, and what docs/lifecycle.md says are the same."""

from __future__ import annotations

import re

import pytest

from orchestration.loop.canaries import _SEND_FAILED
from orchestration.loop.circuit_breaker import _NO_ANSWER, _REFUSED_ORDER
from orchestration.loop.command_orders import _WAITING_KINDS
from orchestration.loop.followers import KINDS
from orchestration.loop.metrics import _NO_FAILURE, _SENT_ANEW
from orchestration.operators.lists import _OBJECTIONS, WAITING
from tests.unit.jinja_macros import PROJECT, macros, returned

# what the page says of charges, by what the table says
CHARGES = {"yes": ("yes", "1, its own", "yes, or 1, its own"), "no": ("no", "begins at 0"), "row": ("as above",)}


@pytest.fixture(scope="module")
def reasons() -> list[dict[str, str]]:
    """The rows of the table."""
    rows: list[dict[str, str]] = returned("decisions", "decision_reasons")
    return rows


def _rows(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading of docs/lifecycle.md, without its head."""
    page = (PROJECT / "docs" / "lifecycle.md").read_text(encoding="utf-8")
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def _names(cell: str) -> list[str]:
    return re.findall(r"`([a-z_]+)`", cell)


def test_each_pair_is_there_once_and_whole(reasons: list[dict[str, str]]) -> None:
    pairs = [(row["reason"], row["decision"]) for row in reasons]
    assert len(pairs) == len(set(pairs))
    for row in reasons:
        assert set(row) == {"reason", "decision", "order", "sends", "succeeds", "charges", "refuses", "failure", "redrivable"}
        assert row["order"] in ("", "waiting", "dead_letter", "follower")
        assert row["charges"] in ("yes", "no", "row")
        assert (row["refuses"] in ("order", "report")) == (row["decision"] == "refused")
        assert {row[name] for name in ("sends", "succeeds", "failure", "redrivable")} <= {"yes", ""}


def test_a_reason_has_one_decision_but_for_what_is_parked_or_dropped(reasons: list[dict[str, str]]) -> None:
    usual = [row["reason"] for row in reasons if row["decision"] not in ("parked", "dropped")]
    assert len(usual) == len(set(usual))
    assert {row["reason"] for row in reasons} == set(usual)


@pytest.mark.parametrize("column", ["sends", "succeeds"])
def test_a_decision_is_the_same_for_each_of_its_reasons(reasons: list[dict[str, str]], column: str) -> None:
    said = {(row["decision"], row[column]) for row in reasons}
    assert len(said) == len({decision for decision, _ in said})


def test_docs_lifecycle_has_the_same_reasons(reasons: list[dict[str, str]]) -> None:
    told: dict[str, tuple[set[str], str]] = {}
    for reason, decision, _, charges in _rows("Reasons"):
        decisions = _names(decision)
        for place, name in enumerate(_names(reason)):
            # one cell for several reasons has a decision for each, or one for all
            of_this = {decisions[place]} if len(decisions) == len(_names(reason)) else set(decisions)
            told[name] = of_this, charges
    # that what is dead is parked where there is no dead letter topic, the text says before the table
    known = {row["reason"]: {other["decision"] for other in reasons if other["reason"] == row["reason"]} - {"parked"} for row in reasons}
    assert {name: decisions for name, (decisions, _) in told.items()} == known
    for row in reasons:
        charges = told[row["reason"]][1]
        assert charges in CHARGES[row["charges"]] or (row["charges"] == "row" and charges.startswith("in its row only")), row


def test_docs_lifecycle_has_the_same_decisions(reasons: list[dict[str, str]]) -> None:
    told = {name: cells[1] != "nothing" for cells in _rows("Decisions") for name in _names(cells[0])}
    assert told == {row["decision"]: row["sends"] == "yes" for row in reasons}


def test_metrics_count_the_failures_of_the_table(reasons: list[dict[str, str]]) -> None:
    silent_decisions = {row["decision"] for row in reasons} - {row["decision"] for row in reasons if row["failure"]}
    assert set(_NO_FAILURE) == silent_decisions
    silent_reasons = {row["reason"] for row in reasons if not row["failure"] and row["decision"] not in silent_decisions}
    assert set(_SENT_ANEW) == silent_reasons


def test_circuit_breakers_know_what_is_no_answer_to_a_probe(reasons: list[dict[str, str]]) -> None:
    said = {row["decision"] for row in reasons if row["order"] == "dead_letter" and not row["sends"]}
    assert set(_NO_ANSWER) == {"duplicate", *said}
    assert set(_REFUSED_ORDER) == {row["reason"] for row in reasons if row["refuses"] == "order"}


def test_canaries_and_the_marts_agree_on_what_has_failed_again(reasons: list[dict[str, str]]) -> None:
    module = macros("decisions", "reasons_where", "decisions_where", "failed_again", decision_reasons=lambda: reasons)
    decisions = ", ".join(f"'{decision}'" for decision in _SEND_FAILED)
    asked = f"(later.decision not in ('duplicate', 'follows') and (later.report_topic is not null or later.decision in ({decisions})))"
    assert module.failed_again("later").strip() == asked


def test_docs_lifecycle_says_which_orders_are_refused(reasons: list[dict[str, str]]) -> None:
    asked = {
        name
        for reason, decision, when, _ in _rows("Reasons")
        for name in _names(reason)
        if "refused" in decision and "asked" in when.lower()
    }
    assert asked == {row["reason"] for row in reasons if row["refuses"] == "order"}


def test_the_loop_orders_what_becomes_of_followers(reasons: list[dict[str, str]]) -> None:
    assert {*KINDS} == {row["reason"] for row in reasons if row["order"] == "follower"}


def test_commands_give_the_orders_that_the_loop_does_not_give_itself(reasons: list[dict[str, str]]) -> None:
    orders = {
        row["reason"]: row["order"]
        for row in reasons
        if row["order"] and row["reason"] not in ("release", "probe", "follows_a_dead_message")
    }
    said = macros("decisions", "command_kinds").command_kinds()
    assert set(re.findall(r"'(\w+)'", said)) == {*orders, "pause", "resume", "stop"}
    assert set(WAITING) == set(_WAITING_KINDS) == {order for order, about in orders.items() if about == "waiting"}


def test_a_dry_run_has_words_for_each_reason_against_a_destination(reasons: list[dict[str, str]]) -> None:
    nothing = {name: lambda *_: "" for name in ("kafka_topic", "is_read_by_a_source", "is_internal_topic")}
    said = macros("routing", "destination_objection", **nothing).destination_objection("topic", "false", "sources")
    objections = set(re.findall(r"then '(\w+)'", said))
    assert set(_OBJECTIONS) == objections
    assert objections <= {row["reason"] for row in reasons if row["refuses"]}


@pytest.mark.parametrize(
    ("which", "kinds"),
    [
        (None, "release probe send_now cancel in_turn redrive discard restore note purge follows_a_dead_message"),
        ("waiting", "release probe send_now cancel"),
        ("send_anew", "release probe send_now"),
        ("dead_letter", "redrive discard restore note purge"),
        ("annotate", "discard restore note purge"),
        ("follower", "in_turn follows_a_dead_message"),
    ],
)
def test_orders_are_found_by_what_they_are_about(reasons: list[dict[str, str]], which: str | None, kinds: str) -> None:
    module = macros("decisions", "reasons_where", "order_kinds", decision_reasons=lambda: reasons)
    assert re.findall(r"'(\w+)'", module.order_kinds(which)) == kinds.split()


def test_a_list_of_decisions_is_taken_from_the_table(reasons: list[dict[str, str]]) -> None:
    module = macros("decisions", "reasons_where", "decisions_where", "operator_decisions", decision_reasons=lambda: reasons)
    assert module.decisions_where(sends="yes").strip() == "('retry', 'publish', 'redrive', 'dead_letter', 'orphan')"
    assert module.decisions_where(succeeds="yes", sends="").strip() == "('cancelled', 'follows', 'parked', 'dropped', 'adopted')"
    assert module.operator_decisions().strip() == "('discarded', 'restored', 'noted', 'purged')"
    refusals = "unknown_source not_spoken_for no_route destination_not_legal destination_is_a_source destination_is_internal"
    assert re.findall(r"'(\w+)'", module.reasons_where(redrivable="yes")) == refusals.split()
