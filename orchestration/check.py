"""`redrive check`: everything that would keep the loop from working, found before it is started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka.cimpl import NewTopic

from orchestration.cluster import Cluster, ClusterError, Topic
from orchestration.seeds import (
    ERROR_KINDS,
    KIND_PRECEDENCE,
    NO_TOPIC,
    Row,
    SeedError,
    Seeds,
    is_source,
    read_seeds,
    topic_from_template,
    topic_matches,
)
from orchestration.settings import Settings

# Our headers make a legal record larger: a retry or dead letter topic must take that much more than the original.
HEADER_ROOM_BYTES = 64 * 1024


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    ok: bool
    what: str
    found: str
    warns: bool = False
    """It works, but probably not as it is meant."""


@dataclass(frozen=True)
class Need:
    """A destination that a route makes for a topic (and group) that is there."""

    topic: str
    original: Topic
    why: str


def run_checks(settings: Settings, *, create: bool) -> list[Finding]:
    """Looks at seeds, brokers, topics and catalog, in this order; what can't be looked at without the one before is left out."""
    findings: list[Finding] = []
    try:
        seeds = read_seeds(settings.seeds)
        findings.append(Finding(True, "seeds", f"{sum(map(len, seeds.rows.values()))} rows in {settings.seeds}"))
    except SeedError as error:
        findings += [Finding(False, "seeds", problem) for problem in error.problems]
        seeds = None
    findings += _kafka(settings, seeds, create=create)
    catalog = _catalog(settings)
    findings.append(catalog)
    if seeds is not None:
        findings += _equal_rules(settings, seeds)
        findings += _policies(settings, seeds) if catalog.ok else ()
    return findings


def _equal_rules(settings: Settings, seeds: Seeds) -> Iterator[Finding]:
    """Rules that differ in nothing but the kind: the SQL knows which of them wins, a reader may not."""
    first: dict[tuple[str, ...], Row] = {}
    for row in seeds.rows["error_rules"]:
        conditions = tuple(row[column] for column in ("error_class", "message", "code", "header", "source", "topic", "consumer_group"))
        other = first.setdefault(conditions, row)
        if other is not row:
            yield Finding(
                True,
                "seeds",
                f"{settings.seeds / 'error_rules.csv'}:{row.line}: {' '.join(filter(None, conditions[:4])) or 'all others'} is "
                f"{row['kind']} here and {other['kind']} on line {other.line}: of equal rules the first of "
                f"{', '.join(KIND_PRECEDENCE)} decides",
                warns=True,
            )


def _policies(settings: Settings, seeds: Seeds) -> Iterator[Finding]:
    """Policies that the SQL can't read, or that a route uses for what they can't do: with one of them, no seeds are loaded."""
    from orchestration.explain import Rulebook

    rows = {row["policy"]: row for row in seeds.rows["retry_policies"]}
    reading = Rulebook(settings).reading_of({name: row["definition"] for name, row in rows.items()})
    misused = [row for row in seeds.rows["routes"] if row["publish_policy"] in reading.processing_only]
    for row in misused:
        yield Finding(
            False,
            "seeds",
            f"{settings.seeds / 'routes.csv'}:{row.line}: publish_policy is {row['publish_policy']!r}, which has "
            f"{reading.processing_only[row['publish_policy']]}: failed sends are bounded by attempts alone; name a policy without it",
        )
    for problem in reading.problems:
        yield Finding(
            False,
            "seeds",
            f"{settings.seeds / 'retry_policies.csv'}:{rows[problem.name].line}: definition is {problem.definition!r}: "
            f"{problem.clause!r} is not understood; docs/policies.md has the grammar",
        )
    if not reading.problems and not misused:
        yield Finding(True, "policies", f"{len(rows)} can be read")


def _kafka(settings: Settings, seeds: Seeds | None, *, create: bool) -> Iterator[Finding]:
    servers = settings.kafka_properties.get("bootstrap.servers")
    if not servers:
        yield Finding(
            False, "brokers", "bootstrap.servers is not set: REDRIVE_KAFKA__BOOTSTRAP_SERVERS=host:9092, or [kafka] in redrive.toml"
        )
        return
    cluster = Cluster(settings.kafka_properties)
    try:
        names = cluster.topic_names()
    except ClusterError as error:
        yield Finding(False, "brokers", f"{servers}: {error}")
        return
    yield Finding(True, "brokers", f"{servers}: {len(names)} topics")
    if seeds is None:
        return
    try:
        yield from _commands_topic(cluster, settings, names, create=create)
        yield from _topics(cluster, seeds, names, create=create)
    except ClusterError as error:
        yield Finding(False, "topics", str(error))


def _commands_topic(cluster: Cluster, settings: Settings, names: list[str], *, create: bool) -> Iterator[Finding]:
    name = settings.commands_topic
    what = f"topic {name}"
    if not name:
        return
    if name in names:
        yield Finding(True, what, "operators' commands: who may write there may redrive")
    elif create:
        # one partition: what is said about a command later must be read later
        objection = cluster.create([NewTopic(name, num_partitions=1, config={"retention.ms": "-1"})])[name]
        yield Finding(objection is None, what, objection or "made, with 1 partition")
    else:
        yield Finding(True, what, "is missing: no commands can be given; --create makes it", warns=True)


def _topics(cluster: Cluster, seeds: Seeds, names: list[str], *, create: bool) -> Iterator[Finding]:
    topics = cluster.describe(names)
    for source in seeds.rows["sources"]:
        found = [name for name in names if topic_matches(name, source["topic"])]
        adopts = "; their dead letters are adopted" if source["adopt"] else ""
        which = f"{', '.join(found)}{adopts}" if found else f"no topic matches {source['topic']}"
        yield Finding(bool(found), f"source {source['source']}", which)
    needs = _needs(cluster, seeds, topics)
    yield from _loops(seeds, needs)
    sizes = cluster.max_message_bytes([*topics])
    missing = {need.topic: need for need in needs if need.topic not in topics}
    if create and missing:
        said = cluster.create(
            NewTopic(
                need.topic,
                num_partitions=need.original.partitions,
                config={"max.message.bytes": str(_room(sizes, need.original.name))},
            )
            for need in missing.values()
        )
        for name, objection in said.items():
            yield Finding(objection is None, f"topic {name}", objection or f"made, with {missing[name].original.partitions} partitions")
    else:
        for name, need in missing.items():
            yield Finding(False, f"topic {name}", f"is missing ({need.why}); --create makes it")
    for need in needs:
        if need.topic in topics:
            yield _fits(need, topics[need.topic], sizes)


def _fits(need: Need, topic: Topic, sizes: dict[str, int]) -> Finding:
    """Whether an existing destination can take what comes: missing partitions are only worth a word, a size limit is not."""
    what = f"topic {topic.name}"
    wanted = _room(sizes, need.original.name)
    if topic.name in sizes and sizes[topic.name] < wanted:
        return Finding(
            False, what, f"max.message.bytes is {sizes[topic.name]}; {wanted} leaves room for headers on records of {need.original.name}"
        )
    if topic.partitions < need.original.partitions:
        return Finding(
            False,
            what,
            f"has {topic.partitions} partitions, {need.original.name} has {need.original.partitions}: "
            "records of the others go where their key says, and lose their order",
        )
    return Finding(True, what, f"{topic.partitions} partitions ({need.why})")


def _loops(seeds: Seeds, needs: list[Need]) -> Iterator[Finding]:
    for need in needs:
        for source in seeds.rows["sources"]:
            if topic_matches(need.topic, source["topic"]):
                yield Finding(
                    False, f"topic {need.topic}", f"is read by source {source['source']}: what is sent there would come back ({need.why})"
                )


def _needs(cluster: Cluster, seeds: Seeds, topics: dict[str, Topic]) -> list[Need]:
    """The destinations of all topics that a source speaks for and a known group reads, and of the sources themselves."""
    needs: dict[str, Need] = {}
    for source in seeds.rows["sources"]:
        for topic in topics.values():
            # what is adopted stays where it lies, whatever it is
            if not source["adopt"] and topic_matches(topic.name, source["topic"]):
                name = f"{topic.name}.dlq"
                needs.setdefault(name, Need(name, topic, f"for reports of source {source['source']} that can't be placed"))
    declared = {source["consumer_group"] for source in seeds.rows["sources"]} - {""}
    for group, read in cluster.groups().items():
        for name in read & topics.keys():
            _add(needs, seeds, topics[name], group)
    for name, topic in topics.items():
        for group in declared:
            if any(
                topic_matches(name, pattern)
                for source in seeds.rows["sources"]
                for pattern in source["speaks_for"].split()
                if not pattern.startswith("^")
            ):
                _add(needs, seeds, topic, group)
    return [need for need in needs.values() if need.original.name not in needs]


def _add(needs: dict[str, Need], seeds: Seeds, topic: Topic, group: str) -> None:
    spoken = any(topic_matches(topic.name, pattern) for source in seeds.rows["sources"] for pattern in source["speaks_for"].split())
    if not spoken or is_source(seeds, topic.name):
        return
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
        if "{kind}" in template or template == NO_TOPIC:
            continue
        name = topic_from_template(template, topic.name, group, None)
        if name != topic.name:
            needs.setdefault(name, Need(name, topic, f"{what} of {topic.name} for group {group}"))


def routes_of(seeds: Seeds, topic: str, group: str) -> list[Row]:
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


def _room(sizes: dict[str, int], original: str) -> int:
    return sizes.get(original, 1_048_588) + HEADER_ROOM_BYTES


def _catalog(settings: Settings) -> Finding:
    from orchestration.catalog import default_catalog, left_behind
    from orchestration.spark import in_short, schema, start_session

    probe = f"{schema(settings.project)}.check_writes"
    try:
        spark = start_session(settings)
        spark.sql(f"create namespace if not exists {schema(settings.project)}")
        spark.sql(f"create or replace table {probe} using iceberg as select 1 as one")
        spark.sql(f"drop table {probe} purge")
    except Exception as error:
        return Finding(False, "catalog", f"can't be written to: {in_short(error)}")
    found = f"schema {schema(settings.project)} can be written to"
    if left_behind(settings):
        return Finding(True, "catalog", f"{found}; the tables have the names of version 0.1.0: the next start moves them", warns=True)
    if default_catalog(settings.project) == schema(settings.project):
        return Finding(
            True,
            "catalog",
            f"{found}, but the catalog has its name: the tables lie in the empty namespace, which most other readers can't name; "
            "docs/tables.md",
            warns=True,
        )
    return Finding(True, "catalog", found)
