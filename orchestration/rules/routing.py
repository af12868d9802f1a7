"""Which topics a pattern means, and which route a message has, by seeds that are read as files: for what must work without Spark.

The loop routes in SQL: models/rules/routes_ranked.sql ranks the routes, and the macros topic_matches, topic_from_template and
is_our_destination read them. What is here is a copy of that, which a change there must change, too.
"""

from __future__ import annotations

import re

from orchestration.rules.seed_rows import Row, Seeds
from orchestration.rules.vocabulary import ERROR_KINDS


def topic_matches(topic: str, pattern: str) -> bool:
    """Whether a topic is meant by a pattern of the seeds: as the macro of this name decides it."""
    if pattern == "*":
        return True
    if pattern.startswith("^"):
        return re.search(pattern, topic) is not None
    return topic == pattern


def is_source(seeds: Seeds, topic: str) -> bool:
    """Whether a source reads a topic."""
    return any(topic_matches(topic, source["topic"]) for source in seeds.rows["sources"])


def topic_from_template(template: str, topic: str, group: str | None, kind: str | None) -> str:
    """A destination's name from its template: as the macro of this name makes it."""
    for word, value in (("{topic}", topic), ("{group}", group), ("{kind}", kind)):
        template = template.replace(word, value or "")
    return template


def routes_of(seeds: Seeds, topic: str, group: str | None) -> list[Row]:
    """The routes of a topic and group, one for each kind of error."""
    chosen = (route_for(seeds, topic, group, kind) for kind in ERROR_KINDS)
    return list({row.line: row for row in chosen if row is not None}.values())


def route_for(seeds: Seeds, topic: str, group: str | None, kind: str | None) -> Row | None:
    """The most specific route that matches, as `routes_ranked` sorts them."""

    def rank(row: Row) -> tuple[int, int, int, str, int]:
        pattern = row["topic"]
        by_topic = 2 if pattern == "*" else 1 if pattern.startswith("^") else 0
        return by_topic, -len(pattern), int(row["consumer_group"] == "*"), pattern, int(row["error_kind"] == "*")

    matching = (row for row in seeds.rows["routes"] if topic_matches(topic, row["topic"]) and row["consumer_group"] in ("*", group))
    return min((row for row in matching if row["error_kind"] in ("*", kind)), key=rank, default=None)


def speaks_for_all(pattern: str) -> bool:
    """Whether a pattern of `speaks_for` allows whatever topic a report names: it tells no topic from another."""
    return pattern.startswith("^") and all(topic_matches(name, pattern) for name in ("a", "Z", "0", "_", ".-.", "x" * 249))


def speaks_for(source: Row, topic: str) -> bool:
    return any(topic_matches(topic, pattern) for pattern in source["speaks_for"].split())


def is_our_destination(seeds: Seeds, source: Row, topic: str) -> bool:
    """Whether a topic is taken for a retry or dead letter topic: as the macro of this name decides it, of any group."""
    if topic in source["speaks_for"].split():
        return False
    templates = {row[column] for row in seeds.rows["routes"] for column in ("retry_topic", "dead_letter_topic")}
    templates |= {row["dead_letter_topic"] for row in seeds.rows["dead_letter_topics"]}
    for template in templates - {"{topic}"}:
        pattern = re.escape(template).replace(r"\{topic\}", "(?P<topic>.+)", 1).replace(r"\{topic\}", "(?P=topic)")
        pattern = pattern.replace(r"\{group\}", ".+").replace(r"\{kind\}", "[a-z]+")
        found = re.fullmatch(pattern, topic)
        if found and ("{topic}" not in template or speaks_for(source, found["topic"])):
            return True
    return False
