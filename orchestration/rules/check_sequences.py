"""Whether consumers can keep the order of sequences: docs/sequences.md says what they need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from orchestration.kafka.cluster import Cluster, Topic
from orchestration.rules.check_findings import Finding, own_topic
from orchestration.rules.seed_rows import Seeds
from orchestration.rules.topics_needed import Need
from orchestration.settings import Settings

# How partitions with the same number of all topics come to the same member, if the topics have equally many.
_ALIGNING = ("range",)


def sequences_kept(
    cluster: Cluster, settings: Settings, seeds: Seeds, needs: Iterable[Need], topics: Mapping[str, Topic], *, create: bool
) -> Iterator[Finding]:
    """Checks the topic of sequences, the partitions of original and retry topics, and how the groups share them.

    needs: the destinations; only those whose route asks for order matter here. topics: those that exist.
    """
    if not any(route["sequence"] for route in seeds.rows["routes"]):
        return
    yield from _topic(cluster, settings, topics, create=create)
    ordered = [need for need in needs if need.in_order_for]
    for need in ordered:
        # one that is missing is made with as many partitions
        has, wanted = topics.get(need.topic, need.original).partitions, need.original.partitions
        if has != wanted:
            of_whom = f"the group{'s' if need.in_order_for[1:] else ''} {', '.join(need.in_order_for)}"
            yield Finding(
                False,
                f"topic {need.topic}",
                f"has {has} partitions, {need.original.name} has {wanted}: {of_whom} can't keep the order of sequences,"
                " as a record and its retry may come to two consumers; both need equally many",
            )
    for group, assignor in cluster.assignors({group for need in ordered for group in need.in_order_for}).items():
        if assignor is None:
            yield Finding(True, f"group {group}", "can't be described: how it shares its partitions is not known", warns=True)
        elif assignor not in _ALIGNING:
            yield Finding(
                False,
                f"group {group}",
                f"shares its partitions by {assignor!r}: a record and its retry may come to two consumers, and lose their order;"
                f" set partition.assignment.strategy (of the newer group protocol: group.remote.assignor) to {_ALIGNING[0]}",
            )


def _topic(cluster: Cluster, settings: Settings, topics: Mapping[str, Topic], *, create: bool) -> Iterator[Finding]:
    name = settings.sequences_topic
    if not name:
        yield Finding(
            False, "sequences", "sequences_topic (REDRIVE_SEQUENCES_TOPIC) is empty: consumers are not told which sequences are held"
        )
        return
    if name in topics:
        if topics[name].partitions != 1:
            wrong = f"has {topics[name].partitions} partitions, and needs 1: what is decided must be read in its order"
            yield Finding(False, f"topic {name}", wrong)
            return
        config = cluster.configs([name]).get(name, {})
        policy, kept = config.get("cleanup.policy") or "", (config.get("retention.ms"), config.get("retention.bytes") or "-1")
        if "delete" in policy and kept != ("-1", "-1"):
            wrong = f"loses what is held for long (cleanup.policy={policy}): consumers would process records out of turn; set it to compact"
            yield Finding(False, f"topic {name}", wrong)
            return
    found = "tells consumers which sequences are held"
    without = "consumers that keep the order of sequences don't start"
    made = {"cleanup.policy": "compact"}
    yield from own_topic(cluster, settings, name, topics, found, without, create=create, needed=True, config=made)
