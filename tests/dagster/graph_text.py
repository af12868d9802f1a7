"""The whole of what Dagster is given, as text: a change of it shows as a diff of tests/dagster/graph.txt."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg


def graph_text(definitions: dg.Definitions) -> str:
    """Assets in their order with what they depend on; checks; jobs with what they select; schedules."""
    return "\n".join(_lines(definitions)) + "\n"


def _lines(definitions: dg.Definitions) -> Iterator[str]:
    graph = definitions.resolve_asset_graph()
    yield "assets: group / key [kinds] <- dependencies; read as earlier ticks left them"
    for key in sorted(graph.get_all_asset_keys(), key=lambda key: (graph.get(key).group_name, key)):
        node = graph.get(key)
        before = ", ".join(sorted(parent.to_user_string() for parent in node.parent_keys)) or "-"
        earlier = node.metadata.get("reads of earlier ticks")
        made = "" if node.is_materializable else " (external)"
        yield f"  {node.group_name} / {key.to_user_string()} [{', '.join(sorted(node.kinds))}]{made} <- {before}" + (
            f"; {earlier}" if earlier else ""
        )
    yield "checks: asset: name"
    for check in sorted(graph.asset_check_keys):
        yield f"  {check.asset_key.to_user_string()}: {check.name}"
    yield "jobs: executor: what they make, or do"
    for job in sorted(definitions.resolve_all_job_defs(), key=lambda job: job.name):
        if job.name.startswith("__"):
            continue
        layer = job.asset_layer
        assets = sorted(key.to_user_string() for key in layer.selected_asset_keys)
        checked = sorted(check.name for check in layer.asset_graph.asset_check_keys)
        does = [*assets, *(f"check {name}" for name in checked)] or sorted(node.name for node in job.nodes)
        yield f"  {job.name}: {job.executor_def.name}: {', '.join(does)}"
    yield "schedules: cron -> job, status"
    for name in sorted(schedule.name for schedule in definitions.schedules or ()):
        schedule = definitions.resolve_schedule_def(name)
        yield f"  {name}: {schedule.cron_schedule} -> {schedule.job_name}, {schedule.default_status.value}"
