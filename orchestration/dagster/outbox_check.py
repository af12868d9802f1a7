"""The asset check of outbox tables: whether each can be read, and how long its rows have been pending."""

from datetime import timedelta

import dagster as dg

from orchestration.dagster.resource import Redrive

# A loop takes pending rows in with each tick. With shifts, rows wait for the next one.
LATE = timedelta(minutes=5)


@dg.asset_check(
    asset="outbox_open",
    description=(
        f"Each outbox table can be read, and no row has been pending for more than {round(LATE.total_seconds() / 60)} minutes (else a "
        "warning). The databases are asked, so it doesn't matter whether a loop runs."
    ),
)
def outboxes_keep_up(redrive: Redrive) -> dg.AssetCheckResult:
    from orchestration.outbox.database import outbox_tables
    from orchestration.outbox.states import OutboxError
    from orchestration.rules.seeds import read_seeds

    facts: dict[str, int | str] = {}
    unread = late = 0
    for table in outbox_tables((row.values for row in read_seeds(redrive.settings.seeds).rows["outboxes"]), redrive.settings.connections):
        name = table.outbox.name
        try:
            lag = table.lag()
        except OutboxError as error:
            unread += 1
            facts[name] = str(error)
            continue
        facts[f"{name}, pending"] = lag.pending
        if lag.oldest_seconds is not None:
            facts[f"{name}, oldest, s"] = round(lag.oldest_seconds)
            late += lag.oldest_seconds > LATE.total_seconds()
    return dg.AssetCheckResult(
        passed=not unread and not late,
        severity=dg.AssetCheckSeverity.ERROR if unread else dg.AssetCheckSeverity.WARN,
        metadata={"unread": unread, "late": late, **facts},
    )
