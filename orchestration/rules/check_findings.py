"""What a check of `redrive check` finds, and the checks of redrive's own topics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka.cimpl import NewTopic

from orchestration.kafka.cluster import Cluster
from orchestration.settings import Settings


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    ok: bool
    what: str
    found: str
    warns: bool = False
    """It works, but probably not as intended."""


def own_topic(
    cluster: Cluster,
    settings: Settings,
    name: str,
    names: Collection[str],
    found: str,
    without: str,
    *,
    create: bool,
    needed: bool = False,
    config: Mapping[str, str] | None = None,
) -> Iterator[Finding]:
    """Whether a topic of redrive's is there; create: makes it, with one partition.

    With one partition, records are read in the order in which they were written. found: what to say of it; without: what doesn't work
    while it is missing. needed: then that is an error, not a warning.
    """
    what = f"topic {name}"
    if not name:
        return
    if name in names:
        yield Finding(True, what, found)
    elif create:
        settings_of_it = {"retention.ms": "-1", **(config or {})}
        new = NewTopic(name, num_partitions=1, replication_factor=settings.create_topics_replication, config=settings_of_it)
        objection = cluster.create([new])[name]
        yield Finding(objection is None, what, objection or "made, with 1 partition")
    else:
        yield Finding(not needed, what, f"is missing: {without}; --create makes it", warns=not needed)
