"""Options and arguments that several groups of commands share, and the settings that all of them load."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orchestration.cli.log_lines import JsonLines, LogLines
from orchestration.settings import Settings, SettingsError, load_settings
from orchestration.tables.query import Format

if TYPE_CHECKING:
    from orchestration.operators.dead_letters import DeadLetters
    from orchestration.operators.selections import Selection

Output = Annotated[Format, typer.Option("--format", help="json: one array; jsonl: one object a line; csv: with a header line.")]
Home = Annotated[Path | None, typer.Option("--home", help="Where the state lives. REDRIVE_HOME says the same.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="At most so many rows.")]


def settings_of(**options: object) -> Settings:
    """The settings, with a command's options before everything else; from here on log lines are written as they say."""
    settings = load_settings(**options)
    level = getattr(logging, settings.log_level.upper())
    logging.basicConfig(level=level, stream=sys.stderr, force=True)
    logging.getLogger().handlers[0].setFormatter(JsonLines() if settings.log_format == "json" else LogLines())
    for noisy in ("py4j", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return settings


# ---------- completed by the shell


def _remembered(kind: str) -> Callable[[typer.Context, str], list[str]]:
    """Completes what was shown last: to ask Spark would take ten seconds."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        from orchestration.cli.completion import recall

        try:
            known = recall(load_settings(home=ctx.params.get("home")).home)
        except SettingsError:
            return []
        return [text for text in known.get(kind, ()) if text.startswith(incomplete)]

    return complete


def _kept_lists(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes the names of lists that dry runs have kept, the latest first."""
    try:
        lists = load_settings(home=ctx.params.get("home")).home / "lists"
    except SettingsError:
        return []
    latest_first = sorted(lists.glob(f"{incomplete}*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True)
    return [path.stem for path in latest_first]


# ---------- which messages

MessageId = Annotated[str, typer.Argument(metavar="ID", help="As `dlq list` shows it.", autocompletion=_remembered("message_id"))]
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="As `dlq list` shows them.", autocompletion=_remembered("message_id"))
]
Topic = Annotated[
    str | None,
    typer.Option("--topic", help="The original topic; ^ begins a regular expression.", autocompletion=_remembered("original_topic")),
]
_Class = Annotated[
    str | None,
    typer.Option("--class", help="Error class, with or without its package; or ^...", autocompletion=_remembered("error_class")),
]
_Group = Annotated[str | None, typer.Option("--group", help="The consumer group; or ^...", autocompletion=_remembered("consumer_group"))]
_Fingerprint = Annotated[
    str | None, typer.Option("--fingerprint", help="As `dlq groups` shows it.", autocompletion=_remembered("fingerprint"))
]
_State = Annotated[
    Literal["open", "redriven", "recovered", "discarded", "refused", "all"], typer.Option("--state", help="What was done about it.")
]


@dataclass(frozen=True)
class Filters:
    """What selects dead letters. state: what holds where the command line does not say it."""

    topic: Topic = None
    error_class: _Class = None
    group: _Group = None
    fingerprint: _Fingerprint = None
    state: _State = "open"
    since: Annotated[str | None, typer.Option("--since", help="90s, 30m, 2h, 7d, 4w ago, or 2026-03-01T12:00.")] = None
    where: Annotated[str | None, typer.Option("--where", help="One condition in SQL over the columns of the mart `stranded_messages`.")] = (
        None
    )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is selected by. A state alone selects nothing: it has a default."""
        return not any((self.topic, self.error_class, self.group, self.fingerprint, self.since, self.where))

    def selected(self, settings: Settings) -> tuple[DeadLetters, Selection]:
        """What was said on the command line, checked; what can be checked without Spark before it is started."""
        from orchestration.clock import wall_clock
        from orchestration.operators.dead_letters import DeadLetters
        from orchestration.operators.selections import Selection, parse_since

        since = None if self.since is None else parse_since(self.since, wall_clock())
        dead = DeadLetters(settings)
        for option, wanted in (("--topic", self.topic), ("--class", self.error_class), ("--group", self.group)):
            dead.checked_pattern(option, wanted)
        return dead, Selection(
            state=self.state,
            topic=self.topic,
            error_class=self.error_class,
            group=self.group,
            fingerprint=self.fingerprint,
            since=since,
            where=dead.checked(self.where),
        )


@dataclass(frozen=True)
class WaitingFilters:
    """What selects messages that wait."""

    topic: Topic = None
    error_class: _Class = None
    group: _Group = None
    since: Annotated[str | None, typer.Option("--since", help="Failed last so long ago at most; as for `dlq list`.")] = None
    where: Annotated[str | None, typer.Option("--where", help="One condition in SQL over the columns of the mart `messages`.")] = None

    @property
    def filters(self) -> Filters:
        """The same as filters of any message."""
        return Filters(self.topic, self.error_class, self.group, None, "all", self.since, self.where)


OPEN = Filters()
DISCARDED = Filters(state="discarded")
ANY_STATE = Filters(state="all")
WAITING = WaitingFilters()


@dataclass(frozen=True)
class Choice:
    """Which of the selected messages a command is about, and whether it is given."""

    everything: Annotated[bool, typer.Option("--all", help="All of them: needed where nothing else chooses.")] = False
    most: Annotated[int | None, typer.Option("--max", min=1, help="Only so many: the oldest.")] = None
    listed: Annotated[
        str | None, typer.Option("--list", help="The list that a dry run showed, and no other.", autocompletion=_kept_lists)
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing. --list does just that later.")] = (
        False
    )


CHOICE = Choice()

# ---------- what is said with a command

Reason = Annotated[str, typer.Option("--reason", help="Why: it is kept with the command.")]
Who = Annotated[str | None, typer.Option("--who", help="Who wants it. Default: the system's user.")]
Ticket = Annotated[str | None, typer.Option("--ticket", help="A ticket or an address.")]
Rate = Annotated[str | None, typer.Option("--rate", help="50/s, 10/m, 1/h. Default: as fast as it goes.")]
CommandId = Annotated[str, typer.Argument(metavar="COMMAND", help="As `dlq redrive` said it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing. --list does just that later.")]
