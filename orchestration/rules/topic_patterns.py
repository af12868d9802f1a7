"""Which topics a pattern of the seeds matches. Which of several rows wins is decided in SQL only: orchestration/rules/routing.py."""

from __future__ import annotations

import re

from orchestration.rules.seed_rows import Seeds


def topic_matches(topic: str, pattern: str) -> bool:
    """Whether a pattern of the seeds matches a topic. tests/dbt/test_routing.py compares it with the macro of this name."""
    if pattern == "*":
        return True
    if pattern.startswith("^"):
        return re.search(pattern, topic) is not None
    return topic == pattern


def table_of(topic: str) -> str | None:
    """The table that a source reads instead of topics: what follows `table:` in its cell `topic`. No topic has a name with a colon."""
    prefix, colon, table = topic.partition(":")
    return table if colon and prefix == "table" else None


def is_source(seeds: Seeds, topic: str) -> bool:
    """Whether a source reads a topic."""
    return any(topic_matches(topic, source["topic"]) for source in seeds.rows["sources"])


def speaks_for_all(pattern: str) -> bool:
    """Whether a pattern of `speaks_for` matches every topic, by trying some very different names."""
    return pattern.startswith("^") and all(topic_matches(name, pattern) for name in ("a", "Z", "0", "_", ".-.", "x" * 249))
