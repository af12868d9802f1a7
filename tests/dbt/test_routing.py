"""Where messages go, asked of the SQL: the topics that `redrive check` makes, and what a dry run of a redrive shows.

The routes of a decide run are tested in test_decide_cases.py. Python only matches patterns; here that is compared with the SQL.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as runs
from hypothesis import strategies as st
from pyspark.sql import Row as SparkRow

from orchestration.kafka.cluster import Topic
from orchestration.operators.lists import Target, destinations
from orchestration.rules.patterns import objection
from orchestration.rules.routing import Routing
from orchestration.rules.rulebook import Rulebook
from orchestration.rules.seeds import Row, Seeds, read_seeds
from orchestration.rules.topic_patterns import topic_matches
from orchestration.rules.topics_needed import plan_topics
from orchestration.settings import Settings, load_settings
from tests.dbt.harness import PROJECT, TOPICS, Home

SHIPPED = PROJECT / "dbt_project" / "seeds"


@pytest.fixture(scope="module")
def settings(home: Home) -> Settings:
    return load_settings(
        home=home.path,
        seeds=home.path / "seeds",
        project=PROJECT,
        decisions_topic="told",
        gates_topic="closed.gates",
        protected_topics="a b.redrive.*",
    )


@pytest.fixture(scope="module")
def rulebook(settings: Settings) -> Rulebook:
    return Rulebook(settings)


def seeds(*sources: dict[str, str], routes: tuple[dict[str, str], ...] = ({},), classes: tuple[dict[str, str], ...] = ()) -> Seeds:
    source = {"source": "failures", "topic": "failures", "consumer_group": "", "speaks_for": "orders", "adopt": ""}
    route = {"topic": "*", "consumer_group": "*", "error_kind": "*", "retry_topic": "{topic}-{group}-retry", "sequence": ""}
    rows = {
        "sources": [{**source, **said} for said in sources or ({},)],
        "routes": [{**route, "dead_letter_topic": "{topic}.dlq", **said} for said in routes],
        "dead_letter_topics": [{"error_class": "a.B", "topic": "*", "consumer_group": "*", **said} for said in classes],
    }
    return Seeds({name: tuple(Row(line, values) for line, values in enumerate(listed, 2)) for name, listed in rows.items()}, "digest")


# ---------- the topics that are needed


def topics(*names: str) -> dict[str, Topic]:
    return {name: Topic(name, f"id-of-{name}", 3) for name in names}


def needed(
    rulebook: Rulebook, settings: Settings, seeds: Seeds, names: tuple[str, ...], read: dict[str, set[str]], *groups: str
) -> tuple[set[str], dict[str, str]]:
    with rulebook.routing_of(seeds) as routing:
        plan = plan_topics(settings, routing, seeds, topics(*names), read, groups)
    return {need.topic for need in plan.needs} - {"failures.dlq"}, dict(plan.unknown)


def test_the_topics_of_groups_that_have_committed_are_needed(rulebook: Rulebook, settings: Settings) -> None:
    found, unknown = needed(rulebook, settings, seeds(), ("failures", "orders", "other"), {"billing": {"orders", "other"}})
    assert found == {"orders-billing-retry", "orders.dlq"}
    assert unknown == {}


def test_none_of_redrives_own_topics_and_groups_is_a_consumer_to_make_topics_for(rulebook: Rulebook, settings: Settings) -> None:
    names = ("failures", "redrive.commands", "told", "closed.gates", "__consumer_offsets", "orders", "orders-billing-retry", "orders.dlq")
    read = {"billing": {*names}, "watcher": {"redrive.commands", "told", "failures", "orders.dlq", "orders-billing-retry"}}
    found, _ = needed(rulebook, settings, seeds({"speaks_for": "^.*"}), names, read)
    assert found == {"orders-billing-retry", "orders.dlq"}


def test_a_retry_topic_whose_original_is_gone_needs_none_of_its_own(rulebook: Rulebook, settings: Settings) -> None:
    found, _ = needed(
        rulebook, settings, seeds({"speaks_for": "^.*"}), ("failures", "gone-billing-retry"), {"billing": {"gone-billing-retry"}}
    )
    assert found == set()


def test_a_group_that_has_not_committed_yet_can_be_named(rulebook: Rulebook, settings: Settings) -> None:
    found, unknown = needed(rulebook, settings, seeds(), ("failures", "orders", "other"), {}, "billing", "stock")
    assert found == {"orders-billing-retry", "orders-stock-retry", "orders.dlq"}
    assert unknown == {}


def test_a_named_group_is_not_taken_for_a_reader_of_every_topic(rulebook: Rulebook, settings: Settings) -> None:
    any_topic = seeds({"speaks_for": "^.*"}, {"source": "more", "topic": "more", "speaks_for": "^pay-"})
    found, _ = needed(rulebook, settings, any_topic, ("failures", "orders", "pay-in"), {}, "billing")
    assert found == {"pay-in-billing-retry", "pay-in.dlq"}


def test_a_group_that_a_source_declares_reads_what_the_source_speaks_for(rulebook: Rulebook, settings: Settings) -> None:
    declared = seeds({"consumer_group": "billing", "speaks_for": "orders ^pay-"}, {"source": "s", "topic": "s", "speaks_for": "stock"})
    found, _ = needed(rulebook, settings, declared, ("failures", "orders", "pay-in", "stock"), {})
    assert found == {"orders-billing-retry", "orders.dlq", "pay-in-billing-retry", "pay-in.dlq", "stock.dlq"}


def test_where_order_matters_the_retry_topic_says_for_which_group(rulebook: Rulebook, settings: Settings) -> None:
    routes: tuple[dict[str, str], ...] = ({}, {"topic": "orders", "consumer_group": "billing", "sequence": "key"})
    read = {"billing": {"orders"}, "stock": {"orders"}}
    with rulebook.routing_of(seeds(routes=routes)) as routing:
        plan = plan_topics(settings, routing, seeds(routes=routes), topics("failures", "orders"), read, ())
    ordered = {need.topic: need.in_order_for for need in plan.needs}
    assert ordered == {"failures.dlq": (), "orders.dlq": (), "orders-billing-retry": ("billing",), "orders-stock-retry": ()}


def test_a_retry_topic_of_several_groups_keeps_the_order_for_each_that_needs_it(rulebook: Rulebook, settings: Settings) -> None:
    retries = {"topic": "orders", "retry_topic": "{topic}-retry"}
    ordered = tuple({**retries, "consumer_group": group, "sequence": "key"} for group in ("billing", "stock"))
    routes: tuple[dict[str, str], ...] = ({}, {**retries, "consumer_group": "audit"}, *ordered)
    read = {group: {"orders"} for group in ("audit", "billing", "stock")}
    with rulebook.routing_of(seeds(routes=routes)) as routing:
        plan = plan_topics(settings, routing, seeds(routes=routes), topics("failures", "orders"), read, ())
    assert {need.topic: need.in_order_for for need in plan.needs}["orders-retry"] == ("billing", "stock")


def test_what_cannot_be_known_is_listed(rulebook: Rulebook, settings: Settings) -> None:
    by_kind = seeds({"speaks_for": "orders missing"}, routes=({"retry_topic": "{topic}.{kind}"}, {"topic": "orders"}))
    found, unknown = needed(rulebook, settings, by_kind, ("failures", "orders"), {})
    assert found == {"orders.dlq"}
    assert "--group NAME" in unknown["topic orders"]
    assert "how many partitions" in unknown["topic missing"]
    assert "neither looked for nor made" in unknown["{topic}.{kind}"]


def test_a_class_of_errors_has_destinations_of_its_own(rulebook: Rulebook, settings: Settings) -> None:
    classes = (
        {"dead_letter_topic": "{topic}.bad"},
        {"topic": "^pay-", "dead_letter_topic": "pay.bad"},
        {"consumer_group": "stock", "dead_letter_topic": "{group}.bad"},
        {"dead_letter_topic": "none"},
    )
    found, _ = needed(rulebook, settings, seeds(classes=classes), ("failures", "orders"), {"billing": {"orders"}})
    assert found == {"orders-billing-retry", "orders.dlq", "orders.bad"}


def test_each_kind_of_error_may_have_a_route_of_its_own(rulebook: Rulebook, settings: Settings) -> None:
    routes: tuple[dict[str, str], ...] = (
        {"retry_topic": "unspecific"},
        {"topic": "^ord", "retry_topic": "shorter"},
        {"topic": "^orders", "retry_topic": "longer"},
        {"topic": "^orders", "consumer_group": "billing", "retry_topic": "of.the.group"},
        {"topic": "^orders", "consumer_group": "billing", "error_kind": "quota", "retry_topic": "of.the.kind"},
        {"topic": "^orders", "consumer_group": "stock", "retry_topic": "of.another.group"},
    )
    found, _ = needed(rulebook, settings, seeds(routes=routes), ("failures", "orders"), {"billing": {"orders"}})
    assert found == {"of.the.group", "of.the.kind", "orders.dlq"}


# ---------- where a redrive would go


def listed_(number: int, topic: str = "orders", group: str | None = "billing", kind: str = "fatal") -> Target:
    return Target(f"m/{number}", f"m/{number}#abc", 1_000 + number, topic, group, "KeyError", kind)


def test_a_redrive_goes_by_the_routes_of_today(rulebook: Rulebook) -> None:
    today = seeds(routes=({}, {"topic": "odd", "retry_topic": "failures"}, {"error_kind": "quota", "retry_topic": "{kind}.{topic}"}))
    listed = [listed_(1), listed_(2), listed_(3, "odd"), listed_(4, group=None), listed_(5, kind="quota"), listed_(6, "failures")]
    with rulebook.routing_of(today) as routing:
        assert destinations(lambda: routing, listed, None) == {
            "orders-billing-retry": 2,
            "refused: a source reads it": 1,
            "orders": 1,
            "quota.orders": 1,
            "refused: no original topic is known": 1,
        }
        refused = [replace(listed[0], state="refused")]
        assert (destinations(lambda: routing, refused, None), destinations(lambda: routing, refused, "elsewhere")) == (
            {"decided anew": 1},
            {"refused: --to is for dead letters": 1},
        )
        assert destinations(lambda: routing, listed[:1], "original") == {"orders": 1}
        assert destinations(lambda: routing, listed, "elsewhere") == {"elsewhere": 6}
        internal = [listed_(7, "_schemas"), listed_(8, "told", None)]
        assert destinations(lambda: routing, internal, None) == {"refused: an internal topic": 2}
        assert destinations(lambda: routing, internal, "original") == {"refused: an internal topic": 2}
        assert destinations(lambda: routing, listed[:1], "not legal") == {"refused: Kafka allows no such name": 1}


def test_a_list_that_was_kept_asks_nothing() -> None:
    def fail() -> Routing:
        raise AssertionError("Spark would be started")

    kept = [Target("m/1", "m/1#abc", 1)]
    assert destinations(fail, kept, None) == {"decided when it is sent: a kept list has no topics": 1}
    assert destinations(fail, kept, "elsewhere") == {"elsewhere": 1}


def test_the_rules_in_force_are_asked_where_there_are_some(rulebook: Rulebook) -> None:
    expected = {
        ("routed-eu-1", "billing", "fatal"): ("routed-eu-1.group", None),
        ("routed-eu-1", "billing", "quota"): ("routed-eu-1.kind", None),
        ("routed-eu-1", "stock", "fatal"): ("routed-eu-1.name", None),
        ("into-a-source", "billing", "fatal"): ("failures-topic", "destination_is_a_source"),
    }
    assert rulebook.routing().redrives(expected, None) == expected


# ---------- what the seeds that are shipped say


def test_the_shipped_routes_say_whom_to_ask_about_the_demos_orders(home: Home) -> None:
    columns = ["retry_policy", "publish_policy", "retry_topic", "dead_letter_topic", "owner", "runbook"]
    rows = [(*(row[name] for name in ("topic", "consumer_group", "error_kind")), *(row[name] for name in columns)) for row in _routes()]
    names = "topic, consumer_group, error_kind, " + ", ".join(columns)
    home.spark.createDataFrame(rows, names.replace(",", " string,") + " string").createOrReplaceTempView("shipped")
    found = home.spark.sql(
        home.compiled(
            f"""
            select
                topic,
                kind,
                {{{{ route_for_kind(routes_of('routes', 'topic', "'billing'"), 'kind') }}}} as route
            from values ('orders'), ('anything') as topics (topic)
            cross join values ('fatal'), ('retriable'), ('blocking'), (null) as kinds (kind)
            cross join (
                select sort_array(collect_list(struct(*))) as routes from ({{{{ ranked_routes('shipped', {columns}) }}}})
            )
            """
        )
    ).collect()
    routes: dict[tuple[str, str | None], SparkRow] = {(row["topic"], row["kind"]): row["route"] for row in found}
    assert len(routes) == 8
    for kind in ("fatal", "retriable", "blocking", None):
        own, others = routes["orders", kind], routes["anything", kind]
        assert own["owner"]
        assert own["runbook"]
        # what decides is the same as for any other topic
        assert all(own[name] == others[name] for name in ("retry_policy", "publish_policy", "retry_topic", "dead_letter_topic"))
        assert not others["owner"]


def _routes() -> Iterable[Row]:
    return read_seeds(SHIPPED).rows["routes"]


# ---------- patterns, in both languages

_PARTS = st.sampled_from(["orders", "eu", "[.]", "-", ".*", "[a-z]+", "[^.]", "(a|orders)", "\\d", "\\w+", "$", "^", "x{2,3}", "_"])
_PATTERNS = st.one_of(
    st.sampled_from(["*", "orders", "orders.eu", "^"]),
    st.lists(_PARTS, max_size=5).map(lambda parts: "^" + "".join(parts)),
)
_TOPICS = st.lists(st.sampled_from(["orders", "eu", ".", "-", "a", "A", "7", "_", "xx", "*", "retry"]), min_size=1, max_size=5).map("".join)


def test_python_matches_a_pattern_as_the_sql_does(home: Home) -> None:
    cases: dict[tuple[str, str], bool] = {}

    @runs(max_examples=500, database=None, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(topic=_TOPICS, pattern=_PATTERNS)
    def collect(topic: str, pattern: str) -> None:
        if pattern.startswith("^") and objection(pattern) is not None:
            return
        cases[topic, pattern] = topic_matches(topic, pattern)

    collect()
    assert len(cases) > 200
    assert 20 < sum(cases.values()) < len(cases) - 20
    home.spark.createDataFrame(list(cases), "topic string, pattern string").createOrReplaceTempView("patterns")
    found = home.spark.sql(home.compiled("select *, {{ topic_matches('topic', 'pattern') }} as matches from patterns")).collect()
    assert {(row["topic"], row["pattern"]): row["matches"] for row in found} == cases


def test_python_knows_the_internal_topics_that_the_sql_knows(home: Home) -> None:
    names = ["_x", "__consumer_offsets", "announced", "announced2", "guarded-gates", "redrive.commands", "redrive", "orders"]
    names += ["other-commands", "other-commands-2", "staging-", "staging-x", "staging", "by.group.forbidden", "by.group.allowed", "*"]
    asked = home.spark.createDataFrame([(name,) for name in names], "topic string")
    asked.createOrReplaceTempView("perhaps_internal")
    found = home.spark.sql(home.compiled("select topic, {{ is_internal_topic('topic') }} as internal from perhaps_internal")).collect()
    settings = load_settings(home=home.path, seeds=home.path / "seeds", project=PROJECT, **TOPICS)
    assert {row["topic"]: row["internal"] for row in found} == {name: settings.is_internal(name) for name in names}
    assert {True, False} == {row["internal"] for row in found}
