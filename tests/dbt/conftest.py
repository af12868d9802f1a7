"""One home for all tests of a session: starting Spark, dbt and the tables takes 20 s."""

from __future__ import annotations

import pytest

from tests.dbt.harness import Home

SOURCES = [
    {"source": "failures", "topic": "failures-topic", "dialect": "redrive", "speaks_for": "^.*"},
    {"source": "spring", "topic": "spring-topic", "dialect": "spring", "speaks_for": "^spring-.*"},
    {"source": "narrow", "topic": "narrow-topic", "dialect": "redrive", "speaks_for": "spoken-for", "consumer_group": "declared"},
]

ROUTES = [
    {"topic": "*", "retry_policy": "default", "retry_topic": "{topic}-{group}-retry"},
    {"topic": "twice-at-most", "retry_policy": "twice", "retry_topic": "{topic}-retry"},
    {"topic": "into-a-source", "retry_policy": "default", "retry_topic": "failures-topic"},
]

POLICIES: list[dict[str, object]] = [
    {"policy": "default", "max_attempts": 5, "initial_ms": 1000, "factor": 2, "max_ms": 60000, "jitter": 0.3},
    {"policy": "publish", "max_attempts": None, "initial_ms": 1000, "factor": 2, "max_ms": 60000, "jitter": 0.3},
    {"policy": "twice", "max_attempts": 2, "initial_ms": 100, "factor": 1, "max_ms": 100, "jitter": 0},
]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Tables with a source of each dialect, one that speaks for a single topic, and a few routes."""
    return Home(
        tmp_path_factory.mktemp("home") / "home",
        seeds={
            "sources": [{"consumer_group": None, "start": "earliest", **row} for row in SOURCES],
            "routes": [{"consumer_group": "*", "publish_policy": "publish", "dead_letter_topic": "{topic}.dlq", **row} for row in ROUTES],
            "retry_policies": POLICIES,
        },
    )
