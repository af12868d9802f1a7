"""Which retry and dead letter topics the routes make of the topics that are there, and what can't be known about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from orchestration.kafka.cluster import Topic
from orchestration.rules.routing import (
    is_our_destination,
    is_source,
    routes_of,
    speaks_for,
    speaks_for_all,
    topic_from_template,
    topic_matches,
)
from orchestration.rules.seed_rows import Row, Seeds
from orchestration.rules.vocabulary import NO_TOPIC
from orchestration.settings import Settings


@dataclass(frozen=True)
class Need:
    """A destination that a route makes for a topic (and group) that is there."""

    topic: str
    original: Topic
    why: str


@dataclass(frozen=True)
class Plan:
    """The destinations that are needed, each for one topic that its messages come from; and what can't be known: of what, and why."""

    needs: tuple[Need, ...]
    unknown: tuple[tuple[str, str], ...]


def plan_topics(
    settings: Settings, seeds: Seeds, topics: Mapping[str, Topic], read: Mapping[str, Collection[str]], groups: Collection[str]
) -> Plan:
    """The destinations of everything that a source speaks for, and what can't be known about them.

    read: the topics that consumer groups have committed offsets of, by group. groups: those that the topics are read by as well, as
    somebody says: the topics that `speaks_for` tells, but not those that it only allows as any.
    """
    needs: dict[tuple[str, str], Need] = {}
    unknown: dict[str, str] = {}
    sources = seeds.rows["sources"]
    for source in sources:
        for topic in topics.values():
            # what is adopted stays where it lies, whatever it is
            if not source["adopt"] and topic_matches(topic.name, source["topic"]):
                name = f"{topic.name}.dlq"
                needs[name, topic.name] = Need(name, topic, f"for reports of source {source['source']} that can't be placed")
        for name in source["speaks_for"].split():
            if not name.startswith("^") and name not in topics:
                unknown[f"topic {name}"] = (
                    f"is missing, and source {source['source']} speaks for it: how many partitions its retries and dead letters need "
                    "is not known"
                )
    for topic in topics.values():
        if settings.is_internal(topic.name) or is_source(seeds, topic.name):
            continue
        speakers = [source for source in sources if speaks_for(source, topic.name) and not is_our_destination(seeds, source, topic.name)]
        narrow = [source for source in speakers if any(topic_matches(topic.name, one) for one in _narrow_patterns(source))]
        known = {group for group, its_topics in read.items() if topic.name in its_topics}
        known |= {source["consumer_group"] for source in narrow if source["consumer_group"]} | ({*groups} if narrow else set())
        for group in sorted(known) if speakers else ():
            _add(needs, seeds, topic, group)
        if narrow and not known:
            _add(needs, seeds, topic, None)
            unknown[f"topic {topic.name}"] = (
                "no consumer group is known to read it (none has committed offsets): topics with {group} in their names were not "
                "looked for; --group NAME says which"
            )
    wanted = {name for name, _ in needs}
    templates = [(row, column) for row in seeds.rows["routes"] for column in ("retry_topic", "dead_letter_topic")]
    templates += [(row, "dead_letter_topic") for row in seeds.rows["dead_letter_topics"]]
    for row, column in templates:
        if "{kind}" in row[column]:
            unknown[row[column]] = "the kind of the error is part of the name: such topics are neither looked for nor made"
    return Plan(tuple(need for need in needs.values() if need.original.name not in wanted), tuple(unknown.items()))


def _narrow_patterns(source: Row) -> list[str]:
    """What a source speaks for as far as it tells topics from others."""
    return [pattern for pattern in source["speaks_for"].split() if not speaks_for_all(pattern)]


def _add(needs: dict[tuple[str, str], Need], seeds: Seeds, topic: Topic, group: str | None) -> None:
    templates = [
        (route[column], what)
        for route in routes_of(seeds, topic.name, group)
        for column, what in (("retry_topic", "retries"), ("dead_letter_topic", "dead letters"))
    ]
    templates += [
        (row["dead_letter_topic"], f"dead letters ({row['error_class']})")
        for row in seeds.rows["dead_letter_topics"]
        if topic_matches(topic.name, row["topic"]) and row["consumer_group"] in ("*", group)
    ]
    for template, what in templates:
        if "{kind}" in template or template == NO_TOPIC or (group is None and "{group}" in template):
            continue
        name = topic_from_template(template, topic.name, group, None)
        if name != topic.name:
            whose = "" if group is None else f" for group {group}"
            needs.setdefault((name, topic.name), Need(name, topic, f"{what} of {topic.name}{whose}"))
