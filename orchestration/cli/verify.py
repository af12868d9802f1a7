"""The command `verify`."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from orchestration.cli.options import Home, settings_of
from orchestration.clock import wall_clock
from orchestration.output import console, printable

if TYPE_CHECKING:
    from orchestration.operators.verification import Verification


def verify(
    since: Annotated[
        str | None, typer.Option("--since", help="A duration such as 2h, or a time: what was recorded since. Default: everything.")
    ] = None,
    output: Annotated[
        Literal["table", "json", "prometheus"],
        typer.Option("--format", help="prometheus: metrics, for a textfile collector or a push gateway."),
    ] = "table",
    home: Home = None,
) -> None:
    """Prove the promises over the tables and topics: nothing lost, early or twice, exact bytes. Exits with 1 if one is broken.

    Reads the topics that redrive has sent to, with a Spark of its own; may run beside the loop.
    """
    from orchestration.operators import verification

    proved = verification.verify(settings_of(home=home), None if since is None else _moment(since))
    if output == "json":
        print(json.dumps(_as_json(proved)))
    elif output == "prometheus":
        print("\n".join(_as_metrics(proved)))
    else:
        _show(proved)
    raise typer.Exit(1 if proved.broken else 0)


def _moment(text: str) -> datetime:
    from orchestration.operators.selections import DlqError, parse_since

    try:
        return parse_since(text, wall_clock())
    except DlqError:
        raise typer.BadParameter(
            f"{text!r} is neither a duration such as 90m or 2d nor a time such as 2026-11-25T10:00", param_hint="--since"
        ) from None


def _show(proved: Verification) -> None:
    screen = console()
    table = Table("promise", "broken", "", box=None, pad_edge=False)
    for finding in proved.findings:
        color = "red" if finding.broken else "green"
        table.add_row(finding.promise.name, f"[{color}]{finding.broken:,}[/{color}]", escape(finding.promise.says))
    screen.print(table)
    for finding in proved.findings:
        if finding.broken:
            screen.print(f"\n[red]{finding.promise.name}[/red]: {finding.broken:,}, of which")
            for subject, detail in finding.named:
                screen.print(f"  {escape(printable(subject))}: {escape(printable(detail))}")
    print(f"\n{proved.results:,} results and {proved.records:,} records in {proved.topics:,} topics{_since(proved)}")
    if proved.gone:
        print(f"topics that don't exist any more, and were not read: {printable(', '.join(proved.gone))}")


def _since(proved: Verification) -> str:
    return "" if proved.since is None else f" since {proved.since:%Y-%m-%d %H:%M:%S} UTC"


def _as_json(proved: Verification) -> dict[str, object]:
    return {
        "since": None if proved.since is None else proved.since.isoformat(),
        "results": proved.results,
        "records": proved.records,
        "topics": proved.topics,
        "topics_gone": list(proved.gone),
        "promises": [
            {
                "promise": finding.promise.name,
                "broken": finding.broken,
                "named": [{"subject": subject, "detail": detail} for subject, detail in finding.named],
            }
            for finding in proved.findings
        ],
    }


def _as_metrics(proved: Verification) -> list[str]:
    return [
        "# HELP redrive_broken_promises Breaches of a promise that `redrive verify` has found.",
        "# TYPE redrive_broken_promises gauge",
        *(f'redrive_broken_promises{{promise="{finding.promise.name}"}} {finding.broken}' for finding in proved.findings),
        "# HELP redrive_verified_timestamp_seconds When `redrive verify` ended.",
        "# TYPE redrive_verified_timestamp_seconds gauge",
        f"redrive_verified_timestamp_seconds {wall_clock().timestamp():.3f}",
    ]
