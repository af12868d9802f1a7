"""`redrive dlq`: commands about dead letters, and about commands that were given."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from orchestration.cli.bundles import with_bundles
from orchestration.cli.commanding import Chosen, carry_out, send_command, who_asks
from orchestration.cli.options import (
    CHOICE,
    DISCARDED,
    OPEN,
    Choice,
    CommandId,
    DryRun,
    Filters,
    Home,
    Ids,
    Rate,
    Reason,
    Ticket,
    Who,
    WithFollowers,
    settings_of,
)
from orchestration.cli.screen import asking, tell


def add_to(dlq: typer.Typer) -> None:
    """Adds these commands to the group `dlq`."""
    dlq.command("redrive")(with_bundles(_redrive))
    dlq.command("discard")(with_bundles(_discard))
    for what, does, by_default in (
        ("restore", "Undo a discard.", DISCARDED),
        ("note", "Attach a note to dead letters: a reason, a ticket.", OPEN),
    ):
        _add_statement(dlq, what, does, by_default)
    dlq.command("purge")(with_bundles(_purge))
    dlq.command("triage")(_triage)
    for what, does in (
        ("pause", "Pause a command: it issues nothing until it is resumed."),
        ("resume", "Continue a command that was paused, or whose canaries failed. While canaries are awaited, nothing changes."),
        ("stop", "End a command: messages that it has not issued yet stay as they are."),
    ):
        _add_about_command(dlq, what, does)


def _redrive(
    reason: Reason,
    ids: Ids = None,
    to: Annotated[
        str | None,
        typer.Option("--to", help="retry (by the route; default), original, or a topic.", autocompletion=lambda: ["retry", "original"]),
    ] = None,
    rate: Rate = None,
    at: Annotated[str | None, typer.Option("--at", help="Not before: 2026-03-01T12:00, in UTC.")] = None,
    canary: Annotated[int | None, typer.Option("--canary", help="Send this many first; the rest when they have succeeded.")] = None,
    assume_after: Annotated[
        str | None,
        typer.Option("--assume-after", help="After this time a canary whose group commits no offsets counts as succeeded. Default: 5m."),
    ] = None,
    ticket: Ticket = None,
    who: Who = None,
    filters: Filters = OPEN,
    with_followers: WithFollowers = False,
    choice: Choice = CHOICE,
    home: Home = None,
) -> None:
    """Send dead letters again, to the retry topic of the route that applies now. Each keeps its id; its attempts count from 1 again."""
    from orchestration.operators.commands import CommandRequest, parse_assume_after, parse_at, parse_rate

    request = CommandRequest(
        "redrive",
        reason,
        who_asks(who),
        ticket,
        rate=None if rate is None else parse_rate(rate),
        at=None if at is None else parse_at(at),
        canary=canary,
        assume_after=None if assume_after is None else parse_assume_after(assume_after),
        to=to,
    )
    send_command(home, request, Chosen(ids, filters, choice, with_followers))


def _discard(
    reason: Reason,
    ids: Ids = None,
    ticket: Ticket = None,
    who: Who = None,
    filters: Filters = OPEN,
    with_followers: WithFollowers = False,
    choice: Choice = CHOICE,
    home: Home = None,
) -> None:
    """Close dead letters without sending them. They stay where they are."""
    from orchestration.operators.commands import CommandRequest

    send_command(home, CommandRequest("discard", reason, who_asks(who), ticket), Chosen(ids, filters, choice, with_followers))


def _add_statement(dlq: typer.Typer, what: str, does: str, by_default: Filters) -> None:
    """Adds a command that sends nothing: it records something about dead letters."""

    def say(
        reason: Reason,
        ids: Ids = None,
        ticket: Ticket = None,
        who: Who = None,
        filters: Filters = by_default,
        choice: Choice = CHOICE,
        home: Home = None,
    ) -> None:
        from orchestration.operators.commands import CommandRequest

        send_command(home, CommandRequest(what, reason, who_asks(who), ticket), Chosen(ids, filters, choice))

    dlq.command(what, help=does)(with_bundles(say))


def _purge(
    reason: Reason,
    ids: Ids = None,
    ticket: Ticket = None,
    who: Who = None,
    filters: Filters = DISCARDED,
    choice: Choice = CHOICE,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    home: Home = None,
) -> None:
    """Hide the payloads of discarded dead letters, which can then not be sent again; `redrive maintain` removes the bytes.

    Copies in Kafka are left, and those in snapshots until they expire.
    """
    from orchestration.operators.commands import CommandRequest

    send_command(home, CommandRequest("purge", reason, who_asks(who), ticket), Chosen(ids, filters, choice), asks=not yes)


def _triage(dry_run: DryRun = False, home: Home = None) -> None:
    """Do what the rules ask for: redrive by `redrive_rules`, discard and purge by `purge_after` of routes. One command for each rule."""
    from orchestration.operators.commands import check_request
    from orchestration.operators.lists import triage
    from orchestration.rules.seeds import read_seeds

    settings = settings_of(home=home)
    seeds = read_seeds(settings.seeds)
    if not dry_run:
        settings.require_brokers()
    asked = asking(settings)
    wanted = triage(asked.dead_letters)
    for request, listed in wanted:
        check_request(settings, seeds, request)
        tell.print(escape(request.reason))
        carry_out(asked, request, listed, dry_run=dry_run)
    if not wanted:
        tell.print("the rules ask for nothing now: no dead letter is to be sent again, discarded or purged")


def _add_about_command(dlq: typer.Typer, what: str, does: str) -> None:
    def say(command: CommandId, reason: Reason, who: Who = None, home: Home = None) -> None:
        from orchestration.operators.commands import CommandRequest

        send_command(home, CommandRequest(what, reason, who_asks(who), of=command), None)

    dlq.command(what, help=does)(say)
