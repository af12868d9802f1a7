"""The graph: dbt's models and seeds as assets, with the dependencies that a tick really has.

A tick reads what earlier ticks wrote: a failed send is decided by the next decide run, and `ready` leaves out what is sent. So the ledgers,
and only they, close a cycle. A graph of assets has no cycles, so these edges are not drawn; the descriptions of the assets name them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.utils import is_valid_email
from dagster_dbt import DagsterDbtTranslator, build_dbt_asset_specs

from orchestration.dagster.manifest import Manifest
from orchestration.rules.seeds import Row, SeedError, read_seeds

# The tables that a tick writes, in their order: intake, decide, publish, and the loop's state.
WRITTEN_BY_A_TICK = ("events", "deliveries", "publish_results", "ticks")

# Dependencies that dbt doesn't know: what else the loop reads before it writes a table.
_READ_BY_THE_LOOP = {
    "events": ("report_topics",),
    "publish_results": ("ready", "bulk_open", "named_deliveries"),
    "ticks": ("events", "deliveries", "publish_results"),
}

# The ledgers that assets upstream of them read, as earlier ticks left them.
_CLOSES_THE_LOOP = ("publish_results", "ticks")

# The assets that belong to the owners of routes.
_OWNED = ("dead_letters", "dead_letter_groups", "dead_letter_rate")

# The step of a model, by its name or by its folder. A view belongs to the step that reads it.
_GROUPS = {
    "events": "intake",
    "intake": "decide",
    "retry": "decide",
    **dict.fromkeys(("ready", "bulk_open", "named_deliveries", "publish_results", "ticks"), "publish"),
}

_KINDS = {"events": {"kafka", "iceberg"}, "publish_results": {"kafka", "iceberg"}, "ticks": {"iceberg"}}
_KINDS_BY_MATERIALIZATION = {
    "seed": {"dbt", "csv"},
    "view": {"dbt", "view"},
    "append_only": {"dbt", "iceberg"},
    "table": {"dbt", "iceberg"},
}


class Translator(DagsterDbtTranslator):
    """How a dbt node becomes an asset: its name, its description, and the step of the loop it belongs to."""

    def get_asset_key(self, dbt_resource_props: Mapping[str, Any]) -> dg.AssetKey:
        """The model's name, as `redrive sql` knows it."""
        return dg.AssetKey(dbt_resource_props["name"])

    def get_description(self, dbt_resource_props: Mapping[str, Any]) -> str:
        """The model's description, without its SQL."""
        return str(dbt_resource_props["description"]).strip()

    def get_group_name(self, dbt_resource_props: Mapping[str, Any]) -> str:
        """Rules, the step of the loop, or the folder of the model."""
        if dbt_resource_props["resource_type"] == "seed":
            return "rules"
        folder = dbt_resource_props["fqn"][1]
        return _GROUPS.get(dbt_resource_props["name"]) or _GROUPS.get(folder, folder)


@dataclass(frozen=True)
class Graph:
    """All assets made from dbt's manifest, in topological order: rules, what the loop writes and reads, and what people query."""

    rules: tuple[dg.AssetSpec, ...]
    loop: tuple[dg.AssetSpec, ...]
    marts: tuple[dg.AssetSpec, ...]

    @property
    def keys(self) -> tuple[dg.AssetKey, ...]:
        """All of them."""
        return tuple(spec.key for spec in (*self.rules, *self.loop, *self.marts))


def rows_of(seeds: Path) -> Mapping[str, tuple[Row, ...]]:
    """The rows of the seeds by their names.

    None if the seeds can't be read: the graph is shown all the same, and `redrive check` says what is wrong.
    """
    try:
        return read_seeds(seeds).rows
    except SeedError:
        return {}


def owners_of(routes: Iterable[Row]) -> tuple[str, ...]:
    """The owners in the seed `routes`, in Dagster's form: an e-mail address, or `team:` and a name."""
    names = sorted({row["owner"] for row in routes} - {""})
    teams = (name if is_valid_email(name) else f"team:{name.removeprefix('team:').strip()}" for name in names)
    return tuple(owner for owner in teams if owner != "team:")


def read_graph(manifest: Manifest, owners: Sequence[str] = (), outboxes: Sequence[dg.AssetKey] = ()) -> Graph:
    """Makes the specs from a manifest. owners: those of the assets about dead letters. outboxes: tables that the loop takes rows from."""
    specs = {_name(spec.key): spec for spec in build_dbt_asset_specs(manifest=manifest, dagster_dbt_translator=Translator())}
    kinds = {node["name"]: node["config"].get("materialized") for node in manifest["nodes"].values()}
    reads = {name: {_name(dep.asset_key) for dep in spec.deps} for name, spec in specs.items()}
    before, earlier = without_cycles(reads)
    made = {
        name: _finished(specs[name], before[name], earlier.get(name, ()), _KINDS.get(name) or _KINDS_BY_MATERIALIZATION[kinds[name]])
        for name in topological(before)
        if name in specs
    }
    made |= {name: made[name].replace_attributes(owners=list(owners)) for name in _OWNED}
    events = made["events"]
    made["events"] = events.replace_attributes(deps=[*events.deps, *(dg.AssetDep(key) for key in outboxes)])
    rules = tuple(spec for spec in made.values() if spec.group_name == "rules")
    marts = tuple(spec for spec in made.values() if spec.group_name == "marts")
    return Graph(rules, tuple(spec for spec in made.values() if spec not in (*rules, *marts)), marts)


def without_cycles(reads: Mapping[str, Iterable[str]]) -> tuple[dict[str, set[str]], dict[str, tuple[str, ...]]]:
    """What each asset depends on within one tick, and which ledgers it also reads from earlier ticks.

    reads: what each model reads, by name, from dbt. If a model is upstream of a ledger and reads it, it reads what earlier ticks wrote.
    """
    before = {name: {*upstream, *_READ_BY_THE_LOOP.get(name, ())} for name, upstream in reads.items()}
    forward = {name: {up for up in upstream if up not in _CLOSES_THE_LOOP} for name, upstream in before.items()}
    above = {ledger: _ancestors(before[ledger] - {ledger}, forward) for ledger in _CLOSES_THE_LOOP}
    earlier = {
        name: tuple(ledger for ledger in _CLOSES_THE_LOOP if ledger in before[name] and name in above[ledger])
        for name in before
        if name not in _CLOSES_THE_LOOP
    }
    return (
        {name: upstream - set(earlier.get(name, ())) for name, upstream in before.items()},
        {name: ledgers for name, ledgers in earlier.items() if ledgers},
    )


def topological(before: Mapping[str, Iterable[str]]) -> Sequence[str]:
    """The names in topological order, the same every time."""
    sorter = TopologicalSorter({name: sorted(upstream) for name, upstream in sorted(before.items())})
    return tuple(sorter.static_order())


def _ancestors(names: Iterable[str], before: Mapping[str, Iterable[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += before.get(name, ())
    return found


def _finished(spec: dg.AssetSpec, before: Iterable[str], earlier: Iterable[str], kinds: set[str]) -> dg.AssetSpec:
    """A spec with its dependencies within a tick; its description names the reads of earlier ticks."""
    ledgers = [f"`{ledger}`" for ledger in earlier]
    also_reads = f"\n\nAlso reads {' and '.join(ledgers)} as earlier ticks left them (not drawn: it closes a cycle)." if ledgers else ""
    return spec.replace_attributes(
        deps=[dg.AssetDep(name) for name in sorted(before)],
        description=f"{spec.description}{also_reads}",
        kinds=kinds,
        metadata={**spec.metadata, **({"reads of earlier ticks": ", ".join(earlier)} if ledgers else {})},
    )


def _name(key: dg.AssetKey) -> str:
    return key.to_user_string()


# Topics, which others write and read, shown as the two ends of the graph. They are in two groups: a single group would form a cycle with
# the others, with an arrow back across all of them.
KAFKA = (
    dg.AssetSpec(
        "report_topics",
        group_name="kafka_in",
        kinds={"kafka"},
        description="Records that consumers failed to process, with headers that say what happened. The seed `sources` names the topics.",
    ),
    dg.AssetSpec(
        "retry_topics",
        deps=["publish_results"],
        group_name="kafka_out",
        kinds={"kafka"},
        description="Messages that are sent again, each when it is due. If their consumers fail again, they report that to a report topic.",
    ),
    dg.AssetSpec(
        # not dead_letter_topics, which is a seed
        "dlq_topics",
        deps=["publish_results"],
        group_name="kafka_out",
        kinds={"kafka"},
        description="Dead letters: messages that redrive doesn't retry any more, with the reason in their headers.",
    ),
)
