"""The outbox tables of the seed `outboxes`, shown where rows come in, and for each a check of whether its rows are taken in."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import dagster as dg

from orchestration.dagster.resource import Redrive
from orchestration.rules.seed_rows import Row

if TYPE_CHECKING:
    from orchestration.outbox.database import OutboxTable

# A loop takes pending rows in with each tick. With shifts, rows wait for the next one.
LATE = timedelta(minutes=5)

GROUP = "outbox_in"


def outbox_key(row: Row) -> dg.AssetKey:
    """The key of an outbox's asset: `outbox/NAME`."""
    return dg.AssetKey(["outbox", row["outbox"]])


def outbox_assets(rows: Sequence[Row]) -> list[dg.AssetSpec]:
    """An external asset for each outbox."""
    return [
        dg.AssetSpec(
            outbox_key(row),
            group_name=GROUP,
            kinds={"table"},
            description=f"The table `{row['table']}` of the connection `{row['connection']}`: rows that an application wants published.",
        )
        for row in rows
    ]


def outbox_checks(rows: Sequence[Row]) -> list[dg.AssetChecksDefinition]:
    """A check for each outbox, all in one step."""
    if not rows:
        return []
    specs = [
        dg.AssetCheckSpec(
            "keeps_up",
            asset=outbox_key(row),
            description=(
                f"The table can be read, and no row has been pending for more than {round(LATE.total_seconds() / 60)} minutes (else a "
                "warning). The database is asked, so it doesn't matter whether a loop runs."
            ),
        )
        for row in rows
    ]

    @dg.multi_asset_check(name="outboxes_keep_up", specs=specs)
    def outboxes_keep_up(redrive: Redrive) -> Iterable[dg.AssetCheckResult]:
        from orchestration.outbox.database import outbox_tables

        for row, table in zip(rows, outbox_tables([row.values for row in rows], redrive.settings.connections), strict=True):
            yield _result(outbox_key(row), table)

    return [outboxes_keep_up]


def _result(key: dg.AssetKey, table: "OutboxTable") -> dg.AssetCheckResult:
    from orchestration.outbox.states import OutboxError

    try:
        lag = table.lag()
    except OutboxError as error:
        metadata = {"why": str(error)}
        return dg.AssetCheckResult(
            passed=False, asset_key=key, check_name="keeps_up", severity=dg.AssetCheckSeverity.ERROR, metadata=metadata
        )
    oldest = {} if lag.oldest_seconds is None else {"oldest, s": round(lag.oldest_seconds)}
    return dg.AssetCheckResult(
        passed=(lag.oldest_seconds or 0) <= LATE.total_seconds(),
        asset_key=key,
        check_name="keeps_up",
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"pending": lag.pending, **oldest},
    )
