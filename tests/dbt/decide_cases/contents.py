"""What a report says: values that are none, and what Spring writes."""

from __future__ import annotations

from tests.dbt.decide_cases.case import DEAD, ORPHAN, RETRY, Case, attempts, comes, delivered_at
from tests.dbt.harness import Report, report, spring_report

UNREADABLE = ("orphan", "unreadable")

LONG = report("long-texts", error="x" * 600)
LONG = LONG.but(headers=(*(LONG.headers or ()), ("redrive-error-message", b"m" * 2_000), ("redrive-error-stack", b"s" * 2_000)))

CASES = [
    Case(
        "texts are cut, and a retry keeps no stack",
        (comes(LONG),),
        (RETRY,),
        lambda rows: (rows[0]["error_class"], rows[0]["error_message"], rows[0]["error_stack"]) == ("x" * 512, "m" * 1_024, None),
    ),
    # ---------- hostile values
    Case(
        "an offset that is no number",
        (comes(report("unreadable", "x")),),
        (UNREADABLE,),
        lambda rows: rows[0]["topic"] == "failures-topic.dlq",
    ),
    Case("an offset beyond any", (comes(report("unreadable", "9" * 40)),), (UNREADABLE,)),
    Case("a negative partition", (comes(report("unreadable", partition=-1)),), (UNREADABLE,)),
    Case("a topic that isn't one", (comes(report("bad topic")),), (UNREADABLE,)),
    Case("nothing at all", (comes(Report(None, None, None)),), (UNREADABLE,)),
    Case("what retention removed is noted", (comes(Report(None, None, None, kind="gap")),), (("note", "gap"),)),
    # ---------- Spring
    Case(
        "spring: the cause counts, not the listener's wrapper",
        (comes(spring_report(("spring-pay", 0, 1)), spring_report(("spring-pay", 0, 2), error="java.lang.NullPointerException")),),
        (RETRY, DEAD),
    ),
    Case(
        "spring: the first hop is the origin, the last the failure",
        (comes(spring_report(("spring-inv", 1, 77), ("spring-inv-billing-retry", 0, 9)), spring_report(("spring-inv", 1, 78))),),
        (ORPHAN, RETRY),
    ),
    Case(
        "spring: a retry that failed is recognised",
        (
            comes(spring_report(("spring-back", 0, 1))),
            delivered_at(507),
            lambda rows: [spring_report(("spring-back", 0, 1), (rows[0]["topic"], 0, 507))],
        ),
        (RETRY, RETRY),
        attempts(1, 2),
    ),
    Case("spring: a negative offset", (comes(spring_report(("spring-pay", 0, -5))),), (UNREADABLE,)),
]
