"""Whether consumers can keep the order of sequences: docs/sequences.md says what they need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from orchestration.kafka.cluster import Cluster, Topic
from orchestration.rules.check_findings import Finding, own_topic
from orchestration.rules.topics_needed import Need
from orchestration.settings import Settings

# How partitions with the same number of all topics come to the same member, if the topics have equally many.
_ALIGNING = ("range",)


def sequences_kept(
    cluster: Cluster, settings: Settings, needs: Iterable[Need], topics: Mapping[str, Topic], *, create: bool
) -> Iterator[Finding]:
    """Checks the topic of sequences, the partitions of original and retry topics, and how the groups share them.

    needs: the destinations; only those whose route asks for order matter here. topics: those that exist.
    """
    ordered = [need for need in needs if need.in_order_for is not None]
    if not ordered:
        return
    yield from _topic(cluster, settings, topics, create=create)
    for need in ordered:
        # one that is missing is made with as many partitions
        has, wanted = topics.get(need.topic, need.original).partitions, need.original.partitions
        if has != wanted:
            yield Finding(
                False,
                f"topic {need.topic}",
                f"has {has} partitions, {need.original.name} has {wanted}: the group {need.in_order_for} can't keep the order of sequences,"
                " as a record and its retry may come to two consumers; both need equally many",
            )
    for group, assignor in cluster.assignors({str(need.in_order_for) for need in ordered}).items():
        if assignor not in _ALIGNING:
            yield Finding(
                False,
                f"group {group}",
                f"shares its partitions by {assignor!r}: a record and its retry may come to two consumers, and lose their order;"
                f" set partition.assignment.strategy to {_ALIGNING[0]}",
            )


def _topic(cluster: Cluster, settings: Settings, topics: Mapping[str, Topic], *, create: bool) -> Iterator[Finding]:
    name = settings.sequences_topic
    if not name:
        yield Finding(
            False, "sequences", "sequences_topic (REDRIVE_SEQUENCES_TOPIC) is empty: consumers are not told which sequences are held"
        )
        return
    found = "tells consumers which sequences are held"
    without = "consumers that keep the order of sequences wait for it"
    if name in topics:
        if topics[name].partitions != 1:
            wrong = f"has {topics[name].partitions} partitions, and needs 1: what is decided must be read in its order"
            yield Finding(False, f"topic {name}", wrong)
            return
        policy = cluster.configs([name]).get(name, {}).get("cleanup.policy") or ""
        if policy and "compact" not in policy:
            found = f"is not compacted (cleanup.policy={policy}): it grows, and a consumer that starts reads all of it"
            yield Finding(True, f"topic {name}", found, warns=True)
            return
    # a loop makes it as well, if it may create topics
    yield from own_topic(cluster, settings, name, topics, found, without, create=create, config={"cleanup.policy": "compact"})
