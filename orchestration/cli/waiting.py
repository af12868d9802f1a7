"""`redrive waiting`: shows waiting messages, and commands about them."""

from __future__ import annotations

import typer

from orchestration.cli.bundles import with_bundles
from orchestration.cli.commanding import Chosen, send_command, who_asks
from orchestration.cli.options import (
    CHOICE,
    WAITING,
    Choice,
    Home,
    Ids,
    Limit,
    Output,
    Rate,
    Reason,
    Ticket,
    WaitingFilters,
    Who,
    settings_of,
)
from orchestration.cli.screen import asking, print_found

waiting = typer.Typer(help="List, send or cancel waiting messages.", no_args_is_help=True)


@waiting.command("list")
@with_bundles
def waiting_list(filters: WaitingFilters = WAITING, output: Output = "table", limit: Limit = 50, home: Home = None) -> None:
    """List messages whose retry or dead letter is still to be sent, the next one due first, held ones last."""
    from orchestration.operators.rendering import waiting_table

    settings = settings_of(home=home)
    dead = asking(settings).dead_letters
    rows = dead.waiting(filters.filters.selected(dead), limit)
    print_found(settings, rows, output, waiting_table, "no waiting message matches")


def _add_command(name: str, what: str, does: str) -> None:
    def say(
        reason: Reason,
        ids: Ids = None,
        rate: Rate = None,
        ticket: Ticket = None,
        who: Who = None,
        filters: WaitingFilters = WAITING,
        choice: Choice = CHOICE,
        home: Home = None,
    ) -> None:
        from orchestration.operators.commands import CommandRequest, parse_rate

        request = CommandRequest(what, reason, who_asks(who), ticket, rate=None if rate is None else parse_rate(rate))
        send_command(home, request, Chosen(ids, filters.filters, choice))

    waiting.command(name, help=does)(with_bundles(say))


_add_command("send-now", "send_now", "Send retries now, unchanged: of messages in state `waiting`, not of held ones.")
_add_command("cancel", "cancel", "Cancel waiting messages: they end, and nothing more is sent.")
