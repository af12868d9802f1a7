"""Which retry and dead letter topics the routes need for the existing topics, and what can't be known about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from orchestration.kafka.cluster import Topic
from orchestration.rules.routing import Roles, Routing
from orchestration.rules.seed_rows import Row, Seeds
from orchestration.rules.topic_patterns import speaks_for_all, topic_matches
from orchestration.settings import Settings


@dataclass(frozen=True)
class Need:
    """A destination that a route needs for an existing topic (and group).

    in_order_for: the groups that must get the records of both topics in the order of their sequences.
    """

    topic: str
    original: Topic
    why: str
    in_order_for: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """needs: the destinations, each with a topic that its messages come from. unknown: what can't be known, with the reason."""

    needs: tuple[Need, ...]
    unknown: tuple[tuple[str, str], ...]


def plan_topics(
    settings: Settings,
    routing: Routing,
    seeds: Seeds,
    topics: Mapping[str, Topic],
    read: Mapping[str, Collection[str]],
    groups: Collection[str],
) -> Plan:
    """The destinations of everything that a source speaks for, and what can't be known about them.

    read: the topics that consumer groups have committed offsets for, by group. groups: further groups, given by the user. They count as
    readers of every topic that a source names in `speaks_for`, not of those that match only because a pattern allows all topics.
    """
    needs: dict[tuple[str, str], Need] = {}
    unknown: dict[str, str] = {}
    roles = routing.roles(topics)
    for source in seeds.rows["sources"]:
        for topic in topics.values():
            # adopted dead letters stay in their topic, so they need no other
            if not source["adopt"] and source["source"] in roles[topic.name].read_by:
                name = roles[topic.name].dead_letter_topic_of_reports
                needs[name, topic.name] = Need(name, topic, f"for reports of source {source['source']} that can't be placed")
        for name in source["speaks_for"].split():
            if not name.startswith("^") and name not in topics:
                unknown[f"topic {name}"] = (
                    f"is missing, and source {source['source']} speaks for it: how many partitions its retries and dead letters need "
                    "is not known"
                )
    readers = {
        name: _readers(seeds, name, one, read, groups)
        for name, one in roles.items()
        if one.spoken_for_by and not one.read_by and not settings.is_internal(name)
    }
    made = routing.destinations([(name, group) for name, its_groups in readers.items() for group in its_groups])
    for (name, group), destinations in made.items():
        for destination in destinations:
            if destination.topic != name:
                whose = "" if group is None else f" for group {group}"
                ordered = (group,) if group is not None and destination.keeps_order else ()
                new = Need(destination.topic, topics[name], f"{destination.what} of {name}{whose}")
                need = needs.get((destination.topic, name), new)
                needs[destination.topic, name] = replace(need, in_order_for=(*need.in_order_for, *ordered))
        if group is None:
            unknown[f"topic {name}"] = (
                "no consumer group is known to read it (none has committed offsets): topics with {group} in their names were not "
                "looked for; --group NAME names one"
            )
    wanted = {name for name, _ in needs}
    templates = [(row, column) for row in seeds.rows["routes"] for column in ("retry_topic", "dead_letter_topic")]
    templates += [(row, "dead_letter_topic") for row in seeds.rows["dead_letter_topics"]]
    for row, column in templates:
        if "{kind}" in row[column]:
            unknown[row[column]] = "the kind of the error is part of the name: these topics are neither looked for nor made"
    # a retry or dead letter topic that a pattern of `speaks_for` matches, too, is no original topic, and needs none of its own
    return Plan(tuple(need for need in needs.values() if need.original.name not in wanted), tuple(unknown.items()))


def _readers(seeds: Seeds, topic: str, roles: Roles, read: Mapping[str, Collection[str]], groups: Collection[str]) -> list[str | None]:
    """The groups that read a topic; [None] if `speaks_for` names the topic and no group is known."""
    speakers = (source for source in seeds.rows["sources"] if source["source"] in roles.spoken_for_by)
    speaking = [source for source in speakers if any(topic_matches(topic, one) for one in _spoken_for(source))]
    known = {group for group, its_topics in read.items() if topic in its_topics}
    known |= {source["consumer_group"] for source in speaking if source["consumer_group"]} | ({*groups} if speaking else set())
    return [*sorted(known)] or ([None] if speaking else [])


def _spoken_for(source: Row) -> list[str]:
    """The names and patterns of `speaks_for`, without patterns that match every topic."""
    return [pattern for pattern in source["speaks_for"].split() if not speaks_for_all(pattern)]
