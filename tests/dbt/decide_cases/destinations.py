"""Where a message may go, and for what a source may speak."""

from __future__ import annotations

from tests.dbt.decide_cases.case import DEAD, INTERNAL, ORPHAN, RETRY, Case, comes, delivered_at
from tests.dbt.harness import Report, failed_again, order, report

# Kafka's and the Schema Registry's, and those that the settings of `Home` name.
INTERNAL_TOPICS = ("__consumer_offsets", "_schemas", "announced", "guarded-gates", "other-commands", "staging-any")

CASES = [
    Case("no way back into a source", (comes(report("into-a-source")),), (("refused", "destination_is_a_source"),)),
    Case(
        "no retry to an internal topic, whatever a report without a group names",
        (comes(*(report(topic, group=None) for topic in INTERNAL_TOPICS)),),
        (INTERNAL,) * len(INTERNAL_TOPICS),
        lambda rows: {(row["kind"], row["topic"]) for row in rows} == {(None, None)},
    ),
    Case(
        "no retry to an internal topic that a report's group completes",
        (comes(report("_schemas"), report("into-a-group", group="forbidden")),),
        (INTERNAL,) * 2,
    ),
    Case(
        "no dead letter to an internal topic",
        (
            comes(
                report("__consumer_offsets", 5, group=None, error="KeyError"),
                report("into-a-group", 1, group="forbidden", error="KeyError"),
            ),
        ),
        (INTERNAL,) * 2,
    ),
    Case("no orphan to an internal topic", (comes(Report(None, None, None).but(source="_internal")),), (INTERNAL,)),
    Case(
        "no redrive to an internal topic: neither to one that an operator names nor to the original one",
        (
            comes(
                *(report("redrive-internal", offset, error="KeyError") for offset in range(len(INTERNAL_TOPICS) + 1)),
            ),
            lambda rows: [order("redrive", row, to) for row, to in zip(rows, (*INTERNAL_TOPICS, "redrive.commands"), strict=True)],
        ),
        (*(DEAD,) * (len(INTERNAL_TOPICS) + 1), *(INTERNAL,) * (len(INTERNAL_TOPICS) + 1)),
    ),
    Case(
        "a topic that only resembles an internal one is a destination",
        (comes(*(report(topic, group=None) for topic in ("other_schemas", "announced2", "guarded", "staging"))),),
        (RETRY,) * 4,
    ),
    Case("one of our topics, and nothing sent there", (comes(report("lost.dlq")),), (ORPHAN,)),
    Case("a source that nobody declares", (comes(report("undeclared").but(source="nobody")),), (("refused", "unknown_source"),)),
    Case(
        "a source speaks for its topics, with its group",
        (comes(report("spoken-for").but(source="narrow"), report("not-spoken-for").but(source="narrow")),),
        (RETRY, ("refused", "not_spoken_for")),
        lambda rows: rows[0]["consumer_group"] == "declared",
    ),
    Case(
        "a source that doesn't speak for a message's topic charges nothing to it, whatever retry it names",
        (
            comes(report("not-spoken-for", 17, group="declared")),
            delivered_at(4_117),
            lambda rows: [failed_again(rows[0], 4_117).but(source="narrow"), failed_again(rows[0], 4_117)],
        ),
        (RETRY, ("refused", "not_spoken_for"), RETRY),
        lambda rows: rows[2]["attempt"] == 2,
    ),
    Case(
        "a message that an operator has sent to a topic of the source's is the source's business",
        (
            comes(report("sent-elsewhere", 17, group="declared", error="KeyError")),
            delivered_at(4_118),
            lambda rows: [order("redrive", rows[0], "spoken-for")],
            delivered_at(4_119),
            lambda rows: [failed_again(rows[1], 4_119).but(source="narrow")],
        ),
        (DEAD, ("redrive", "redrive"), RETRY),
        lambda rows: rows[2]["attempt"] == 1,
    ),
]
