"""`redrive check`: finds what would keep the loop from working before it is started."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from orchestration.kafka.cluster import Cluster, ClusterError, Topic
from orchestration.kafka.topics import new_topic, room
from orchestration.rules.check_findings import Finding, own_topic
from orchestration.rules.check_sequences import sequences_kept
from orchestration.rules.policy_reading import definitions, problems
from orchestration.rules.seed_rows import Row, Seeds
from orchestration.rules.seeds import SeedError, read_seeds
from orchestration.rules.topic_patterns import speaks_for_all, table_of, topic_matches
from orchestration.rules.topics_needed import Need
from orchestration.rules.vocabulary import KIND_PRECEDENCE
from orchestration.settings import Settings, SettingsError

if TYPE_CHECKING:
    from orchestration.answers.asking import Asking
    from orchestration.rules.rulebook import Rulebook
    from orchestration.tables.query import Tables


def run_checks(asking: Asking, *, create: bool, groups: Collection[str] = ()) -> list[Finding]:
    """Checks seeds, brokers, topics, catalog, equal rules and policies. A check that depends on a failed one is left out.

    create: missing topics are created. groups: further consumer groups that read the topics that sources speak for, beside those that Kafka
    and the seed `sources` name.
    """
    settings, rulebook = asking.settings, asking.rulebook
    findings: list[Finding] = []
    try:
        seeds = read_seeds(settings.seeds)
        findings.append(Finding(True, "seeds", f"{sum(map(len, seeds.rows.values()))} rows in {settings.seeds}"))
    except SeedError as error:
        findings += [Finding(False, "seeds", problem) for problem in error.problems]
        seeds = None
    if seeds is not None:
        findings += _permissions(settings, seeds)
    # before the topics: this creates the catalog of a new home; without one, the session that asks the rules would use a scratch directory
    catalog = _catalog(asking.tables)
    findings += _kafka(settings, seeds, rulebook, groups, create=create)
    findings.append(catalog)
    if seeds is not None:
        findings += _tables(seeds, asking.tables)
        findings += _outboxes(settings, seeds)
        findings += _equal_rules(settings, seeds)
        findings += _policies(settings, seeds, rulebook) if catalog.ok else ()
    return findings


def _permissions(settings: Settings, seeds: Seeds) -> Iterator[Finding]:
    """Sources that speak for all topics or read a topic that redrive writes, and destinations that are internal topics."""
    for row in seeds.rows["sources"]:
        where = f"{settings.seeds / 'sources.csv'}:{row.line}"
        for pattern in filter(speaks_for_all, row["speaks_for"].split()):
            yield Finding(
                True,
                "seeds",
                f"{where}: speaks_for is {pattern!r}: whoever may write to {row['topic']} can have records sent to any topic that is "
                "not internal; name the topics whose failures are reported there",
                warns=True,
            )
        own = (settings.decisions_topic, settings.circuit_breakers_topic, settings.sequences_topic, settings.gates_topic)
        for name in filter(None, own):
            if topic_matches(name, row["topic"]):
                yield Finding(
                    False, "seeds", f"{where}: topic is {row['topic']!r}, which matches {name}: what redrive writes there would come back"
                )
    for seed, column in (("routes", "retry_topic"), ("routes", "dead_letter_topic"), ("dead_letter_topics", "dead_letter_topic")):
        for row in seeds.rows[seed]:
            if "{" not in row[column] and settings.is_internal(row[column]):
                yield Finding(
                    False,
                    "seeds",
                    f"{settings.seeds / seed}.csv:{row.line}: {column} is {row[column]!r}: nothing is sent to an internal topic",
                )


def _tables(seeds: Seeds, tables: Tables) -> Iterator[Finding]:
    """Whether each source that is a table is there, and has the columns that it needs."""
    for row in seeds.rows["sources"]:
        if (name := table_of(row["topic"])) is not None:
            wrong = tables.objections_to_source(name, row["dialect"])
            yield Finding(not wrong, f"source {row['source']}", "; ".join(wrong) or f"the table {name}")


def _outboxes(settings: Settings, seeds: Seeds) -> Iterator[Finding]:
    """Whether each outbox table can be read and written back, and has what it needs."""
    if not seeds.rows["outboxes"]:
        # the imports take a quarter of a second
        return
    from orchestration.outbox.database import outbox_tables
    from orchestration.outbox.states import OutboxError

    for table in outbox_tables((row.values for row in seeds.rows["outboxes"]), settings.connections):
        what = f"outbox {table.outbox.name}"
        try:
            problems, warnings = table.problems()
            lag = table.lag()
        except OutboxError as error:
            yield Finding(False, what, str(error))
            continue
        yield from (Finding(False, what, problem) for problem in problems)
        yield from (Finding(True, what, warning, warns=True) for warning in warnings)
        if not problems:
            oldest = "" if lag.oldest_seconds is None or not lag.pending else f", the oldest for {lag.oldest_seconds:,.0f} s"
            yield Finding(True, what, f"{table.outbox.table}: {lag.pending:,} rows are pending{oldest}")


def _equal_rules(settings: Settings, seeds: Seeds) -> Iterator[Finding]:
    """Error rules that differ only in the kind. It is defined which one applies, but a reader of the file may not know it."""
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


def _policies(settings: Settings, seeds: Seeds, rulebook: Rulebook) -> Iterator[Finding]:
    policies = definitions(seeds)
    wrong = list(problems(settings.seeds, seeds, rulebook.reading_of(policies)))
    yield from (Finding(False, "seeds", problem) for problem in wrong)
    if not wrong:
        yield Finding(True, "policies", f"{len(policies)} can be read")


def _kafka(settings: Settings, seeds: Seeds | None, rulebook: Rulebook, groups: Collection[str], *, create: bool) -> Iterator[Finding]:
    servers = settings.kafka_properties.get("bootstrap.servers")
    if not servers:
        yield Finding(
            False, "brokers", "bootstrap.servers is not set: REDRIVE_KAFKA__BOOTSTRAP_SERVERS=host:9092, or [kafka] in redrive.toml"
        )
        return
    try:
        cluster = Cluster(settings.kafka_properties)
        names = cluster.topic_names()
    except (ClusterError, SettingsError) as error:
        yield Finding(False, "brokers", f"{servers}: {error}")
        return
    yield Finding(True, "brokers", f"{servers}: {len(names)} topics")
    if seeds is None:
        return
    try:
        commands = "operators' commands: whoever may write there can redrive"
        yield from own_topic(cluster, settings, settings.commands_topic, names, commands, "no commands can be given", create=create)
        yield from _topics(cluster, settings, seeds, rulebook, names, groups, create=create)
    except ClusterError as error:
        yield Finding(False, "topics", str(error))


def _topics(
    cluster: Cluster,
    settings: Settings,
    seeds: Seeds,
    rulebook: Rulebook,
    names: list[str],
    groups: Collection[str],
    *,
    create: bool,
) -> Iterator[Finding]:
    topics = cluster.describe(names)
    for source in seeds.rows["sources"]:
        if table_of(source["topic"]) is not None:
            continue
        found = [name for name in names if topic_matches(name, source["topic"])]
        adopts = "; their dead letters are adopted" if source["adopt"] else ""
        which = f"{', '.join(found)}{adopts}" if found else f"no topic matches {source['topic']}"
        yield Finding(bool(found), f"source {source['source']}", which)
    own = {settings.group, f"{settings.transactional_prefix}.{settings.instance}"}
    read = {group: its_topics for group, its_topics in cluster.groups().items() if group not in own}
    try:
        plan = rulebook.plan(seeds, topics, read, groups)
    except Exception as error:
        from orchestration.tables.spark import in_short

        yield Finding(False, "topics", f"the topics that are needed can't be determined without Spark and dbt: {in_short(error)}")
        return
    yield from _loops(seeds, plan.needs)
    yield from sequences_kept(cluster, settings, seeds, plan.needs, topics, create=create)
    yield from _originals(cluster, seeds, {need.original.name for need in plan.needs})
    sizes = cluster.max_message_bytes([*topics])
    missing: dict[str, list[Need]] = {}
    for need in plan.needs:
        if need.topic not in topics:
            missing.setdefault(need.topic, []).append(need)
    new = [new_topic(name, [need.original for need in needs], sizes, settings.create_topics_replication) for name, needs in missing.items()]
    errors = cluster.create(new) if create else {}
    for topic in new:
        why = missing[topic.topic][0].why
        if not create:
            yield Finding(False, f"topic {topic.topic}", f"is missing ({why}); --create makes it")
        else:
            objection = errors[topic.topic]
            yield Finding(objection is None, f"topic {topic.topic}", objection or f"made, with {topic.num_partitions} partitions")
    for name in dict.fromkeys(need.topic for need in plan.needs if need.topic in topics):
        fits = [_fits(need, topics[name], sizes) for need in plan.needs if need.topic == name]
        yield from [finding for finding in fits if not finding.ok] or fits[:1]
    for what, why in plan.unknown:
        yield Finding(True, what, why, warns=True)


def _originals(cluster: Cluster, seeds: Seeds, names: Iterable[str]) -> Iterator[Finding]:
    """Whether the records to which reports by reference refer can be read, and how long they stay.

    Dead letters of share groups may be by reference: only those that the group has copied bring their payload.
    """
    references = [source for source in seeds.rows["sources"] if source["payload"] == "reference"]
    certain = _reported_topics(references, names)
    share_groups = [source for source in seeds.rows["sources"] if source["dialect"] == "share-group"]
    topics = sorted({*certain, *_reported_topics(share_groups, names)})
    denied, configs = cluster.not_readable(topics), cluster.configs(topics)
    for name in topics:
        what = f"original topic {name}"
        policy, kept = (configs.get(name, {}).get(setting) or "" for setting in ("cleanup.policy", "retention.ms"))
        if name in denied:
            found = "this user may not read it: messages whose reports leave out their payload can't be sent"
            yield Finding(name not in certain, what, found, warns=name not in certain)
        elif "compact" in policy:
            found = "is compacted: a message by reference dies without its payload once its key is written again"
            yield Finding(True, what, found, warns=True)
        elif kept.isdigit():
            found = f"keeps records for {int(kept) / 3_600_000:g} h: a message by reference that is sent later dies without its payload"
            yield Finding(True, what, found)


def _reported_topics(sources: Iterable[Row], names: Iterable[str]) -> set[str]:
    """Those of the topics about whose messages the sources report."""
    patterns = [pattern for source in sources for pattern in source["speaks_for"].split()]
    return {name for name in names if any(topic_matches(name, pattern) for pattern in patterns)}


def _fits(need: Need, topic: Topic, sizes: dict[str, int]) -> Finding:
    """Whether an existing destination fits: has room for the largest record with its headers, and as many partitions as the original."""
    what = f"topic {topic.name}"
    wanted = room(sizes, need.original.name)
    if topic.name in sizes and sizes[topic.name] < wanted:
        return Finding(
            False, what, f"max.message.bytes is {sizes[topic.name]}; {wanted} leaves room for headers on records of {need.original.name}"
        )
    if topic.partitions < need.original.partitions:
        return Finding(
            False,
            what,
            f"has {topic.partitions} partitions, {need.original.name} has {need.original.partitions}: "
            "records of the partitions that are missing are placed by key, and lose their order",
        )
    return Finding(True, what, f"{topic.partitions} partitions ({need.why})")


def _loops(seeds: Seeds, needs: Iterable[Need]) -> Iterator[Finding]:
    for name, why in {need.topic: need.why for need in needs}.items():
        for source in seeds.rows["sources"]:
            if topic_matches(name, source["topic"]):
                yield Finding(False, f"topic {name}", f"is read by source {source['source']}: what is sent there would come back ({why})")


def _catalog(tables: Tables) -> Finding:
    try:
        probe = tables.probe()
    except Exception as error:
        from orchestration.tables.spark import in_short

        # Spark itself can't be started
        return Finding(False, "catalog", f"can't be written to: {in_short(error)}")
    if probe.error is not None:
        return Finding(False, "catalog", f"can't be written to: {probe.error}")
    found = f"schema {probe.schema} can be written to"
    if probe.are_left_behind:
        return Finding(True, "catalog", f"{found}; the tables have the names of version 0.1.0: the next start moves them", warns=True)
    if probe.has_name_of_schema:
        return Finding(
            True,
            "catalog",
            f"{found}, but the catalog has its name: the tables lie in the empty namespace, which most other readers can't name; "
            "docs/tables.md",
            warns=True,
        )
    return Finding(True, "catalog", found)
