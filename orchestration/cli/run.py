"""Commands that run the loop, or show its state: run, tick, status, demo, broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from orchestration.cli.ending import SUPERSEDED_EXIT, end_on_signals
from orchestration.cli.options import Home, settings_of
from orchestration.cli.screen import tell
from orchestration.output import as_json, console

if TYPE_CHECKING:
    from orchestration.loop.loop import Loop
    from orchestration.settings import Settings
    from orchestration.status import Status


def run(
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when there was no work for --idle-for, and nothing waits.")] = False,
    idle_for: Annotated[int | None, typer.Option("--idle-for", help="Seconds, for --until-idle.")] = None,
    at_most: Annotated[
        int | None,
        typer.Option(
            "--at-most", min=1, help="End after this many seconds in any case; with --until-idle, exit with 1 if it isn't idle then."
        ),
    ] = None,
    home: Home = None,
) -> None:
    """Run the loop until it is stopped: intake, decide, publish. SIGTERM and Ctrl-C end it, after the results of a send are recorded."""
    settings = settings_of(home=home, idle_for_seconds=idle_for)
    _with_loop(settings, until_idle=until_idle, at_most=at_most)


def tick(home: Home = None) -> None:
    """Run one tick of the loop."""
    from orchestration.loop.loop import Loop

    loop = _loop(Loop, settings_of(home=home).of_one_tick())
    done = loop.tick()
    loop.close()
    if loop.superseded_by is not None:
        raise SystemExit(SUPERSEDED_EXIT)
    print(as_json({"counts": done.counts, "step_ms": done.step_ms}))


def status(output: Annotated[Literal["table", "json"], typer.Option("--format")] = "table", home: Home = None) -> None:
    """Show the state of the loop, from its status file: needs neither Spark nor Kafka."""
    from dataclasses import asdict

    from orchestration.status import is_alive, read_status

    settings = settings_of(home=home)
    found = read_status(settings.status_file)
    if found is None:
        tell.print(f"no loop has run yet with its state under {settings.home}")
        raise typer.Exit(1)
    if output == "json":
        print(as_json({**asdict(found), "alive": is_alive(found, settings.home)}))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    process = "stopped" if found.state == "stopped" else f"{found.state}, process {found.pid}"
    is_gone = found.state != "stopped" and not is_alive(found, settings.home)
    table.add_row("loop", f"{found.state}, but its process {found.pid} is gone" if is_gone else process)
    for name, value in (
        ("generation", f"{found.generation} of instance {found.instance}"),
        ("last tick", f"{found.tick} at {found.at}"),
        ("did", " ".join(f"{name}={count}" for name, count in found.counts.items()) or "nothing"),
        ("took", " ".join(f"{step}={ms}ms" for step, ms in found.step_ms.items()) or "-"),
        ("next look", found.next_due or "-"),
        (
            "timed lane",
            (f"{found.in_lane} messages wait, the next is sent at {found.lane_next_due}; " if found.in_lane else "")
            + _sent(found, "timed"),
        ),
        ("bulk lane", _sent(found, "bulk")),
        ("floor", found.floor),
        ("watermark", f"batch {found.watermark}: all inputs up to it are decided (the last batch is {found.batch})"),
    ):
        table.add_row(name, str(value))
    for what, why in found.trouble.items():
        table.add_row(f"[red]{escape(what)}[/red]", escape(why))
    console().print(table)


def _sent(found: Status, lane: str) -> str:
    """What a lane has sent in the last tick."""
    sent = found.sent.get(lane, {})
    if not sent.get("delivered"):
        return "nothing sent in the last tick"
    p50, p99 = sent["lateness_ms"]
    return f"{sent['delivered']} sent in the last tick, late by {p50} ms (median), {p99} ms (99th percentile)"


def demo(
    port: Annotated[int | None, typer.Option("--port", help="Port of the broker. Default: the one it had before, or a free one.")] = None,
    seconds: Annotated[int, typer.Option("--seconds", help="How long it runs after everything has started.")] = 60,
    outbox: Annotated[
        bool,
        typer.Option("--outbox", help="The orders are rows of an outbox table. Needs a PostgreSQL server: apt-get install postgresql."),
    ] = False,
    home: Home = None,
) -> None:
    """Watch messages fail, wait, return and die: a real broker, a flaky consumer, and the loop, for a minute."""
    from orchestration.demo.demo import run_demo
    from orchestration.demo.postgres import programs

    if outbox and programs() is None:
        raise typer.BadParameter("PostgreSQL is not installed: on Debian, apt-get install postgresql", param_hint="--outbox")
    raise typer.Exit(run_demo(settings_of(home=home), port=port, seconds=seconds, outbox=outbox))


def broker(
    port: Annotated[int | None, typer.Option("--port", help="Default: the one it had before.")] = None,
    home: Home = None,
) -> None:
    """Start the demo's broker again with its data, until Ctrl-C."""
    from orchestration.demo.broker import serve

    serve(settings_of(home=home).broker_directory, port)


def _with_loop(settings: Settings, *, until_idle: bool, at_most: int | None) -> None:
    from orchestration.loop.loop import Loop

    loop = _loop(Loop, settings)
    idle = loop.run(until_idle=until_idle, at_most=at_most)
    if loop.superseded_by is not None:
        # logged already; a separate exit code lets a supervisor see that a new loop must not be started: it would take over in turn
        raise SystemExit(SUPERSEDED_EXIT)
    if until_idle and not idle and not loop.stopping.is_set():
        # logged already, with what it waits for
        raise SystemExit(1)


def _loop(make: type[Loop], settings: Settings) -> Loop:
    """A loop that has started, and that SIGTERM and Ctrl-C end."""
    settings.require_brokers()
    loop = make(settings)
    end_on_signals(loop)
    loop.start()
    return loop
