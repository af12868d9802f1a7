"""Gives an operator's command from the command line: selects the messages, then shows them or sends the list."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.table import Table

from orchestration.cli.options import Choice, Filters, settings_of
from orchestration.cli.screen import asking, progress_of, tell
from orchestration.output import console, printable

if TYPE_CHECKING:
    from orchestration.answers.asking import Asking
    from orchestration.operators.commands import CommandRequest
    from orchestration.operators.lists import Target


@dataclass(frozen=True)
class Chosen:
    """The ids and options that select messages."""

    ids: list[str] | None
    filters: Filters
    choice: Choice
    with_followers: bool | None = None
    """Whether messages that are dead only because of a selected one are taken along. None: the command can't."""

    @property
    def is_empty(self) -> bool:
        """Whether no option selects messages."""
        return not (self.ids or self.choice.everything) and self.filters.is_empty


def who_asks(who: str | None) -> str:
    """The name of the person who gives a command: --who, or the system's user."""
    import getpass

    from orchestration.operators.commands import CommandError

    try:
        return who or getpass.getuser()
    except (ImportError, KeyError, OSError):
        # a container may run as a user that its system doesn't know; which of these it is depends on Python's version
        raise CommandError("the system's user has no name: say with --who who gives this command") from None


def send_command(home: Path | None, request: CommandRequest, chosen: Chosen | None, *, asks: bool = False) -> None:
    """Sends a command, or shows what it would do. chosen: None for a command about another one. asks: asks to confirm at a terminal."""
    from orchestration.operators.commands import CommandError, check_request
    from orchestration.operators.lists import kept, not_taken_along, select_deliveries
    from orchestration.operators.sending import send
    from orchestration.rules.seeds import read_seeds
    from orchestration.tables.query import first_of

    settings = settings_of(home=home)
    asked = asking(settings)
    seeds = read_seeds(settings.seeds)
    check_request(settings, seeds, request)
    if chosen is None or not chosen.choice.dry_run:
        settings.require_brokers()
    if chosen is None:
        command = send(settings, request)
        tell.print(f"{request.what} of command {request.of} is sent, as command {command}")
        return
    choice = chosen.choice
    if choice.listed is not None:
        if not chosen.is_empty or chosen.with_followers:
            raise CommandError("--list names the messages: give no ids, no --all, and no other option that selects messages with it")
        targets = kept(settings.home, choice.listed)[: choice.most]
    elif chosen.is_empty:
        raise CommandError(
            "no messages are selected: give ids, --topic, --class, --group, --since, --where, --list or --all; "
            "--state alone selects nothing"
        )
    else:
        selection = dataclasses.replace(chosen.filters.selected(asked.dead_letters), ids=tuple(chosen.ids or ()))
        with_followers = bool(chosen.with_followers)
        targets = select_deliveries(asked.dead_letters, request.what, selection, choice.most, with_followers=with_followers)
    if not targets:
        state = chosen.filters.state
        tell.print(f"no message matches{'' if state == 'all' else f' in state {state} (--state)'}: nothing is done")
        raise typer.Exit(1)
    if (missing := set(chosen.ids or ()) - {one.message_id for one in targets}) and not (choice.listed or choice.most):
        why = "no such message, in another state than the command or --state selects, or excluded by another option"
        tell.print(f"{len(missing)} of these ids are left out ({why}): {escape(first_of(sorted(missing)))}")
    keeps_sequences = any(row["sequence"] for row in seeds.rows["routes"])
    if chosen.with_followers is False and keeps_sequences and (left := not_taken_along(asked.dead_letters, targets)) != 0:
        what = "messages that are" if left is None else f"{left} messages, which are"
        tell.print(f"{what} dead only because of these, stay dead: --with-followers takes them along")
    carry_out(asked, request, targets, dry_run=choice.dry_run, asks=asks)


def carry_out(
    asked: Asking, request: CommandRequest, targets: Sequence[Target], *, dry_run: bool, asks: bool = False, keeps: bool = True
) -> None:
    """Sends a command with its list. dry_run: only shows the list and, if it keeps lists, keeps it. asks: asks to confirm at a terminal."""
    from orchestration.operators.lists import keep
    from orchestration.operators.sending import send

    settings = asked.settings
    if dry_run:
        _show_list(asked, request, targets)
        if not keeps:
            tell.print("nothing was done")
            return
        try:
            name = keep(settings.home, targets)
            kept_as = f"The list is kept: --list {name}, in place of options that choose messages, means exactly these messages"
        except OSError as error:
            kept_as = f"This list is not kept for --list, as {settings.home} can't be written to: {error.strerror}"
        tell.print(f"nothing was done. {escape(kept_as)}")
        return
    if asks and sys.stdin.isatty():
        _show_list(asked, request, targets)
        typer.confirm(f"{request.what} these {len(targets)} messages? It can't be undone", abort=True, err=True)
    with progress_of(f"writing {request.what} of {len(targets)} messages") as advance:
        command = send(settings, request, targets, advance)
    mart = "commanded_messages" if request.what == "note" else "redrives"
    tell.print(
        f'{request.what} of {len(targets)} messages is given; `redrive sql "select * from {mart}"` shows its progress',
        highlight=False,
    )
    print(command)


def _show_list(asked: Asking, request: CommandRequest, targets: Sequence[Target]) -> None:
    from orchestration.clock import wall_clock
    from orchestration.operators.lists import shown

    table = Table(show_header=False, box=None, pad_edge=False)
    for what, counts in shown(lambda: asked.rulebook, request, targets, wall_clock()):
        for place, (name, count) in enumerate(counts):
            table.add_row("" if place else what, f"{count}", escape(printable(name)))
    for place, one in enumerate(targets[:5]):
        table.add_row("" if place else "for example", "", escape(printable(one.message_id)))
    console().print(table)
