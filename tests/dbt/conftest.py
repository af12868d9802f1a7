"""One home for all tests of a session: Spark, dbt and the tables take 20 s to start."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration.rules.vocabulary import HEADER_PROFILES
from tests.dbt.dead_letter_bytes import topic_of
from tests.dbt.dialect_bytes import ADDED
from tests.dbt.dialect_bytes import SOURCES as DIALECTS
from tests.dbt.harness import PROJECT, Home
from tests.dbt.sequence_kit import LOOKING

SOURCES: list[dict[str, str]] = [
    {"source": "failures", "topic": "failures-topic", "dialect": "redrive", "speaks_for": "^.*"},
    {"source": "spring", "topic": "spring-topic", "dialect": "spring", "speaks_for": "^spring-.*"},
    {
        "source": "narrow",
        "topic": "narrow-topic",
        "dialect": "redrive",
        "speaks_for": "spoken-for",
        "consumer_group": "declared",
        "states_kind": "false",
    },
    {"source": "_internal", "topic": "_internal-topic", "dialect": "redrive", "speaks_for": "^.*"},
    {"source": "graves", "topic": "graves-topic", "dialect": "redrive", "speaks_for": "^adopted ^dropped-", "adopt": "dead"},
    *DIALECTS,
    {"source": "apart", "topic": "apart-topic", "dialect": "redrive", "speaks_for": "^.*", "payload": "reference"},
    {"source": "spring-graves", "topic": "spring-graves-topic", "dialect": "spring", "speaks_for": "^adopted", "adopt": "dead"},
]

ROUTES = [
    {"topic": "*", "retry_policy": "default", "retry_topic": "{topic}-{group}-retry"},
    {"topic": "twice-at-most", "retry_policy": "twice", "retry_topic": "{topic}-retry"},
    {"topic": "into-a-source", "retry_policy": "default", "retry_topic": "failures-topic"},
    {"topic": "into-a-group", "retry_policy": "default", "retry_topic": "by.group.{group}", "dead_letter_topic": "by.group.{group}"},
    {"topic": "^routed-", "retry_policy": "default", "retry_topic": "{topic}.expression"},
    {"topic": "^routed-eu", "retry_policy": "default", "retry_topic": "{topic}.longer"},
    {"topic": "routed-eu-1", "retry_policy": "default", "retry_topic": "{topic}.name"},
    {"topic": "routed-eu-1", "consumer_group": "billing", "retry_policy": "default", "retry_topic": "{topic}.group"},
    {"topic": "charged", "retry_policy": "default", "publish_policy": "twice", "retry_topic": "{topic}-retry", "publish_charge": "all"},
    {"topic": "routed-eu-1", "consumer_group": "billing", "error_kind": "quota", "retry_policy": "bounded", "retry_topic": "{topic}.kind"},
]

# each for the topics of a few tests
ROUTES += [
    *(
        {
            "topic": topic_of(base, profile != base),
            "retry_policy": "default",
            "retry_topic": "{topic}-retry",
            "dead_letter_headers": profile,
        }
        for base in HEADER_PROFILES
        for profile in (base, f"{base}+stack")
    ),
    *(
        {
            "topic": f"{privacy}-things",
            "retry_policy": "default",
            "retry_topic": "{topic}-retry",
            "dead_letter_headers": "safi+stack",
            "privacy": privacy,
        }
        for privacy in ("hidden", "dropped", "everything")
    ),
    *(
        {"topic": topic, "retry_policy": "default", "retry_topic": "{topic}-retry", "dead_letter_topic": dead_letter_topic}
        for topic, dead_letter_topic in [
            ("template-group", "{topic}-{group}-dlt"),
            ("template-shared", "dead.letters"),
            ("template-kind", "{topic}.{kind}.dlq"),
            ("^parked-", "none"),
            ("into-a-source-dead", "failures-topic"),
        ]
    ),
]

ROUTES += [
    {"topic": topic, "retry_policy": "default", "retry_topic": "{topic}.in-order", "sequence": place, **more}
    for topic, place, more in (
        ("^sequence-", "key", {}),
        ("^sequence-hold-", "key", {"followers": "hold"}),
        ("^sequence-release-", "key", {"followers": "release"}),
        ("sequence-header", "sequence", {}),
        ("sequence-path", "$.order.id", {}),
        ("sequence-steps", "$.lines[1]['id']", {}),
        ("sequence-hidden", "key", {"privacy": "hidden"}),
        # of two kinds, one hides the ids
        ("sequence-mixed", "key", {"error_kind": "fatal"}),
        ("sequence-mixed", "key", {"privacy": "hidden"}),
    )
]

DEAD_LETTER_TOPICS = [
    {"error_class": "java.io.IOException+", "topic": "^by-class", "dead_letter_topic": "{topic}.io"},
    {"error_class": "java.net.SocketException+", "topic": "^by-class", "dead_letter_topic": "{topic}.socket"},
    {"error_class": "^java[.]net[.]Bind", "topic": "^by-class", "dead_letter_topic": "{topic}.pattern"},
    {"error_class": "java.net.ConnectException", "topic": "^by-class", "dead_letter_topic": "by.exact"},
    {"error_class": "java.net.ConnectException", "topic": "^by-class", "consumer_group": "billing", "dead_letter_topic": "{topic}.{group}"},
    {"error_class": "park.FatalException", "topic": "^by-class", "dead_letter_topic": "none"},
    {"error_class": "MSG_SIZE_TOO_LARGE", "topic": "^by-class", "dead_letter_topic": "oversized"},
    {"error_class": "into.Source", "topic": "^by-class", "dead_letter_topic": "{group}-topic"},
]

PRIVACY = [
    {"name": "hidden", "stack": "drop", "message": "drop", "payload": "hide", "headers": "authorization ^x-secret-"},
    {"name": "dropped", "stack": "drop", "message": "drop", "payload": "drop", "headers": "authorization ^x-secret-"},
]

POLICIES: list[dict[str, object]] = [
    {"policy": "default", "definition": "exponential(initial=1s, factor=2, max=60s, jitter=0.3, attempts=5)"},
    {"policy": "publish", "definition": "exponential(initial=1s, factor=2, max=60s, jitter=0.3)"},
    {"policy": "twice", "definition": "fixed(100ms x 1)"},
    {"policy": "bounded", "definition": "fixed(1m, max_elapsed=1m, on_exhausted=drop, quota_multiplier=1)"},
]

# beside the project's own: each for topics, or a source, of a few tests
RULES = [
    {"topic": "order", "error_class": "a.B", "message": "late", "kind": "quota"},
    {"topic": "order", "error_class": "a.B", "kind": "fatal"},
    {"topic": "order", "error_class": "^a[.]B", "kind": "retriable"},
    {"topic": "order", "error_class": "^a[.]L", "kind": "poison"},
    {"topic": "order", "error_class": "^a[.]Long", "kind": "quota"},
    {"topic": "order", "error_class": "^java[.]io[.]EOF", "kind": "poison"},
    {"topic": "order", "error_class": "java.io.IOException+", "kind": "fatal"},
    {"topic": "order", "error_class": "java.net.SocketException+", "kind": "quota"},
    {"topic": "order", "error_class": "java.util.concurrent.ExecutionException", "kind": "fatal"},
    {"topic": "order", "message": "^code 5[0-9]+$", "kind": "retriable"},
    {"topic": "order", "kind": "poison"},
    {"topic": "scope-eu", "error_class": "java.lang.Throwable+", "kind": "retriable"},
    {"topic": "^scope-", "error_class": "java.lang.NullPointerException", "kind": "backpressure"},
    {"topic": "^scope-", "error_class": "java.lang.NullPointerException", "kind": "quota", "consumer_group": "billing"},
    {"source": "narrow", "error_class": "java.lang.NullPointerException", "kind": "SBE"},
    {"topic": "codes", "code": "MSG_SIZE_TOO_LARGE", "kind": "poison"},
    {"topic": "codes", "code": "E42", "kind": "fatal"},
    {"topic": "codes", "header": "status=429", "kind": "quota"},
    {"topic": "codes", "header": "status=^5", "kind": "retriable"},
    {"topic": "codes", "header": "x-final", "kind": "fatal"},
    {"topic": "^sets-", "error_class": "@outage", "kind": "blocking"},
    {"topic": "^sets-", "error_class": "java.net.SocketTimeoutException", "kind": "fatal"},
    {"topic": "sets-narrower", "error_class": "java.net.UnknownHostException", "kind": "quota"},
    {"topic": "equal", "error_class": "e.E", "kind": "blocking"},
    {"topic": "equal", "error_class": "e.E", "kind": "retriable"},
    {"topic": "equal", "error_class": "e.E", "kind": "NRE"},
    {"topic": "equal", "error_class": "e.F", "kind": "SBE"},
    {"topic": "equal", "error_class": "e.F", "kind": "SNBE"},
]


def _rules() -> list[dict[str, str | None]]:
    with (PROJECT / "dbt_project" / "seeds" / "error_rules.csv").open(newline="", encoding="utf-8") as file:
        own = list(csv.DictReader(file))
    any_error = {**dict.fromkeys(own[0]), "source": "*", "topic": "*", "consumer_group": "*"}
    return [*own, *({**any_error, **rule} for rule in RULES)]


@pytest.fixture(scope="module")
def home(shared_home: Home) -> Home:
    """The one home, with empty tables: a statement would take the longer, the more modules have left their rows and files."""
    shared_home.empty()
    LOOKING.clear()
    return shared_home


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Tables with a source of each dialect, one that speaks for a single topic, and a few routes."""
    return Home(
        tmp_path_factory.mktemp("home") / "home",
        seeds={
            "sources": [
                {
                    "consumer_group": None,
                    "start": "earliest",
                    "states_kind": "true",
                    "adopt": None,
                    "trusts_counts": None,
                    "payload": None,
                    **row,
                }
                for row in SOURCES
            ],
            "dialects": ADDED,
            "routes": [
                {
                    "consumer_group": "*",
                    "error_kind": "*",
                    "publish_policy": "publish",
                    "dead_letter_topic": "{topic}.dlq",
                    "publish_charge": None,
                    "dead_letter_headers": "",
                    "privacy": "",
                    "sequence": "",
                    "followers": "",
                    **row,
                }
                for row in ROUTES
            ],
            "dead_letter_topics": [{"consumer_group": "*", **row} for row in DEAD_LETTER_TOPICS],
            "privacy": PRIVACY,
            "retry_policies": POLICIES,
            "error_rules": _rules(),
        },
    )


@pytest.fixture
def seeds(home: Home) -> Iterator[Path]:
    """The directory of the seeds, outside of the project. After the test they are restored and loaded again."""
    directory = home.path / "seeds"
    before = {path: path.read_bytes() for path in directory.iterdir()}
    yield directory
    for path, content in before.items():
        path.write_bytes(content)
    home.load_rules()
