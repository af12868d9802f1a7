"""The assets that Dagster can materialize: rules, the tables that a tick writes, marts, and the report on dead letters."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from orchestration.dagster.graph import WRITTEN_BY_A_TICK, Graph
from orchestration.dagster.resource import Redrive, forwarded, our_errors
from orchestration.status import Entry

if TYPE_CHECKING:
    from orchestration.loop.loop import Tick

# The pool of all ops that run the loop: with a limit of 1, only one of them runs at a time.
LOOP = "loop"


class TickConfig(dg.Config):
    """The config of one tick."""

    take_over: bool = Field(default=False, description="Run even if another loop is running: that loop then stops.")


def rules_asset(graph: Graph) -> dg.AssetsDefinition:
    """The seeds, loaded from their files, and the models made from them that a decide run reads."""

    @dg.multi_asset(name="load_rules", specs=graph.rules, can_subset=True)
    def load_rules(context: dg.AssetExecutionContext, redrive: Redrive) -> Iterator[dg.MaterializeResult[None]]:
        from orchestration.rules.seeds import read_seeds

        with our_errors():
            # checks the seeds as the loop does: dbt alone would load wrong ones
            seeds = read_seeds(redrive.settings.seeds).rows
            names = _selected(context, graph.rules)
            for command, nodes in (
                ("seed", [name for name in names if name in seeds]),
                ("run", [name for name in names if name not in seeds]),
            ):
                if nodes:
                    redrive.dbt.run(command, select=nodes)
        for name in names:
            yield _result(name, {"dagster/row_count": redrive.rows(name)})

    return load_rules


def tick_asset(graph: Graph) -> dg.AssetsDefinition:
    """The tables that a tick writes, and the views over them that are no marts: one step, as a tick can't be divided.

    If one of the tables is selected, all of them are written, and those that were not selected are recorded, too.
    """

    @dg.multi_asset(name="turn_once", specs=graph.loop, can_subset=True, pool=LOOP)
    def turn_once(context: dg.AssetExecutionContext, config: TickConfig, redrive: Redrive) -> Iterator[dg.MaterializeResult[None]]:
        selected = _selected(context, graph.loop)
        views = [name for name in selected if name not in WRITTEN_BY_A_TICK]
        written: dict[str, Mapping[str, float]] = {}
        with our_errors(), forwarded(context.log):
            if set(selected) & set(WRITTEN_BY_A_TICK):
                with redrive.started(redrive.new_loop(take_over=config.take_over, one_tick=True)) as loop:
                    written = what_a_tick_wrote(loop.tick())
                trouble = what_hinders(redrive.health())
                # what was written is recorded, even if the rest failed
                for name in written if trouble else written.keys() - set(selected):
                    if written[name]["rows"]:
                        context.log_event(dg.AssetMaterialization(name, metadata=dict(written[name])))
                if trouble:
                    raise dg.Failure(trouble, allow_retries=False)
            if views:
                redrive.require_tables()
                redrive.dbt.run("run", select=views)
        for name in selected:
            yield _result(name, written.get(name, {}))

    return turn_once


def what_a_tick_wrote(tick: "Tick") -> dict[str, Mapping[str, float]]:
    """The rows of each table and the time they took, in the order in which they were written."""
    counts, step_ms = tick.counts, tick.step_ms
    late = dict(zip(("late_p50_ms", "late_p99_ms"), tick.lateness_ms or (), strict=False))
    sent = {name: counts.get(name, 0) for name in ("delivered", "dead_letters", "failed", "unknown")}
    results = sent["delivered"] + sent["failed"] + sent["unknown"]
    return {
        "events": {"rows": counts.get("events", 0), "ms": step_ms.get("intake", 0)},
        "deliveries": {"rows": counts.get("decisions", 0), "ms": step_ms.get("decide", 0)},
        "publish_results": {"rows": results, **sent, **late, "ms": step_ms.get("publish", 0)},
        "ticks": {"rows": int(tick.did_something), "ms": sum(step_ms.values())},
    }


def what_hinders(health: Iterable[Entry]) -> str:
    """Why the loop can't do all of its work; empty if it can. A paused destination doesn't count: its messages wait."""
    return "\n".join(f"{entry.what}: {entry.why}" for entry in health if entry.kind != "destination")


def marts_asset(graph: Graph) -> dg.AssetsDefinition:
    """The marts: views, which are always current. Materializing one creates it again from the project's SQL.

    Rows are not counted, as this would read all decisions, mart by mart.
    """

    @dg.multi_asset(name="make_marts", specs=graph.marts, can_subset=True)
    def make_marts(context: dg.AssetExecutionContext, redrive: Redrive) -> Iterator[dg.MaterializeResult[None]]:
        names = _selected(context, graph.marts)
        with our_errors():
            redrive.require_tables()
            redrive.dbt.run("run", select=names)
        for name in names:
            yield _result(name, {})

    return make_marts


@dg.asset(
    deps=["attempts", "dead_letters", "dead_letter_groups", "dead_letter_rate", "messages"],
    group_name="report",
    kinds={"markdown", "matplotlib"},
    description=(
        "What is dead, and why: grouped by cause, by class, topic, age, over time; and how many retries were sent, how late, and how "
        "many messages recovered. The page is in the metadata of each materialization."
    ),
)
def dead_letter_report(redrive: Redrive) -> dg.MaterializeResult[None]:
    from orchestration.clock import wall_clock
    from orchestration.dagster.report import page, read_report

    with our_errors():
        redrive.require_tables()
    found = read_report(redrive.sql, wall_clock())
    return dg.MaterializeResult(
        metadata={
            "report": dg.MetadataValue.md(page(found)),
            "open": found.open,
            "dead": found.dead,
            "died": found.died,
            "waiting for their dead letter": found.pending,
            "retries sent in 24 hours": found.retries.sent,
            "recovered in 24 hours": found.retries.recovered,
            **({"oldest": dg.MetadataValue.timestamp(found.oldest)} if found.oldest else {}),
        }
    )


def _selected(context: dg.AssetExecutionContext, specs: Iterable[dg.AssetSpec]) -> list[str]:
    """The selected names in the order of the graph, as results must be yielded after those that they depend on."""
    return [spec.key.to_user_string() for spec in specs if spec.key in context.selected_asset_keys]


def _result(name: str, metadata: Mapping[str, float]) -> dg.MaterializeResult[None]:
    return dg.MaterializeResult(asset_key=name, metadata=dict(metadata))
