"""Asset checks: each promise of redrive's as a query of its tables.

They read the tables and the status file, so they may run beside the loop, and it doesn't matter whether Dagster runs that loop.
"""

from datetime import timedelta

import dagster as dg

from orchestration.clock import literal, wall_clock
from orchestration.dagster.loop_signs import last_sign, overdue, undecided, watermark_of
from orchestration.dagster.report import read_unusual
from orchestration.dagster.resource import Redrive
from orchestration.operators.promises import INPUTS_BY_BATCH
from orchestration.status import read_status

# A dead letter is due at once. A paused destination is tried again after 60 s at most; a dead letter that Kafka refused, after the delay of
# its publish_policy, which grows up to a day. If one is still pending after this time, one of the two has happened, or no loop runs.
PENDING_WARNS = timedelta(minutes=5)
PENDING_FAILS = timedelta(hours=1)

# A loop with work to do writes a row at least every minute, as its longest pause is 60 s; a start takes a minute. Five minutes leave a
# margin.
STALLED_AFTER = timedelta(minutes=5)

# An idle loop writes its status file with each tick; between shifts there is no loop.
FRESH_FOR = timedelta(minutes=30)

# How many lines the table of open dead letters has at most.
_OPEN_SHOWN = 50
_OPEN_COLUMNS = (("topic", "string"), ("owner", "string"), ("open", "int"), ("oldest", "string"))

# A gap can't be repaired: it fails the check for this long, and stays in the mart.
GAPS_FAIL_FOR = timedelta(days=7)


# The kinds of parts in the status file that mean that something is not read.
UNREAD = ("source", "partitions", "kafka")


def _minutes(span: timedelta) -> str:
    return f"{round(span.total_seconds() / 60)} minutes"


@dg.asset_check(
    asset="deliveries",
    additional_deps=["events", "publish_results"],
    description="Every event and every failed send has one decision: both are counted, batch by batch, up to the watermark.",
)
def nothing_is_lost(redrive: Redrive) -> dg.AssetCheckResult:
    # read first, as a literal: the batches up to it don't change, whatever a loop appends meanwhile
    watermark = watermark_of(redrive)
    rows = redrive.sql(
        f"""
        with

        inputs as ({INPUTS_BY_BATCH.format(first=0, watermark=watermark)}),

        decided as (
            select batch, count(distinct input_id) as decisions
            from deliveries
            where batch <= {watermark}
            group by batch
        )

        select
            batch,
            coalesce(inputs, 0) as inputs,
            coalesce(decisions, 0) as decisions,
            count(*) over () as batches,
            sum(inputs) over () as all_inputs,
            sum(decisions) over () as all_decisions
        from inputs
        full outer join decided using (batch)
        order by abs(coalesce(inputs, 0) - coalesce(decisions, 0)) desc, batch
        limit 20
        """
    )
    wrong = [row for row in rows if row["inputs"] != row["decisions"]]
    return dg.AssetCheckResult(
        passed=not wrong,
        metadata={
            "up to batch": watermark,
            "inputs": int(rows[0]["all_inputs"] or 0) if rows else 0,
            "decisions": int(rows[0]["all_decisions"] or 0) if rows else 0,
            **(
                {"batches that differ": ", ".join(f"{row['batch']}: {row['inputs']} in, {row['decisions']} decided" for row in wrong)}
                if wrong
                else {}
            ),
        },
    )


@dg.asset_check(asset="publish_results", description="No retry and no dead letter was sent before it was due.")
def nothing_is_early(redrive: Redrive) -> dg.AssetCheckResult:
    (row,) = redrive.sql(
        """
        select
            count(*) as sent,
            count_if(sent_at < due_at) as early,
            max(unix_millis(due_at) - unix_millis(sent_at)) as early_ms,
            min_by(delivery_id, unix_millis(sent_at) - unix_millis(due_at)) as earliest
        from publish_results
        -- of what was found in a topic after a kill, only the record's own time is known, which may be the broker's
        where outcome = 'delivered' and found_by is null
        """
    )
    early = int(row["early"])
    return dg.AssetCheckResult(
        passed=early == 0,
        metadata={
            "sent": int(row["sent"]),
            "early": early,
            **({"by at most, ms": int(row["early_ms"]), "the earliest": row["earliest"]} if early else {}),
        },
    )


@dg.asset_check(
    asset="messages",
    additional_deps=["decisions"],
    description=(
        f"No message stays `dead_letter_pending`: a warning after {_minutes(PENDING_WARNS)} without an acknowledged dead letter, "
        f"a failure after {_minutes(PENDING_FAILS)}. Nothing is lost meanwhile: redrive repeats the send until it succeeds."
    ),
)
def no_dead_message_is_without_its_copy(redrive: Redrive) -> dg.AssetCheckResult:
    # counted from the first dead letter, as each one that fails is followed by a new one
    (row,) = redrive.sql(
        """
        with

        pending as (
            select messages.message_id, min(decisions.recorded_at) as since
            from messages
            inner join decisions
                on messages.message_id = decisions.message_id and messages.life_cycle <=> decisions.life_cycle
                and decisions.kind = 'dead_letter'
            where messages.state = 'dead_letter_pending'
            group by messages.message_id
        )

        select count(*) as pending, min(since) as since, min_by(message_id, since) as longest from pending
        """
    )
    waits = wall_clock() - row["since"] if row["since"] else timedelta()
    return dg.AssetCheckResult(
        passed=waits <= PENDING_WARNS,
        severity=dg.AssetCheckSeverity.ERROR if waits > PENDING_FAILS else dg.AssetCheckSeverity.WARN,
        metadata={
            "pending": int(row["pending"]),
            "longest, s": round(waits.total_seconds()),
            **({"which waits longest": row["longest"]} if row["longest"] else {}),
        },
    )


@dg.asset_check(
    asset="gaps",
    description=f"In the last {GAPS_FAIL_FOR.days} days no report was lost unread: retention removed none, no partition was cut short.",
)
def no_report_was_missed(redrive: Redrive) -> dg.AssetCheckResult:
    since = wall_clock() - GAPS_FAIL_FOR
    (row,) = redrive.sql(
        f"""
        select
            count(*) as gaps,
            count_if(recorded_at >= {literal(since)}) as recent,
            coalesce(sum(case when recorded_at >= {literal(since)} then rows_missing end), 0) as missing,
            max_by(concat(topic, '/', partition, ' ', first_offset, '-', last_offset), recorded_at) as last
        from gaps
        """
    )
    return dg.AssetCheckResult(
        passed=int(row["recent"]) == 0,
        metadata={
            "gaps": int(row["recent"]),
            "rows missing, at most": int(row["missing"]),
            "gaps ever": int(row["gaps"]),
            **({"the last": row["last"]} if row["last"] else {}),
        },
    )


@dg.asset_check(
    asset="ticks",
    additional_deps=["events", "ready"],
    description=(
        "The loop works while there is something to do. The check fails if anything is undecided or overdue, and the loop gave no sign for "
        f"{_minutes(STALLED_AFTER)}. It can't see reports that no loop has taken in yet: see ticks_are_fresh."
    ),
)
def the_loop_is_not_stalled(redrive: Redrive) -> dg.AssetCheckResult:
    now = wall_clock()
    seen = last_sign(redrive)
    undecided_inputs, overdue_deliveries = undecided(redrive), overdue(redrive, now - STALLED_AFTER)
    silent = seen is None or now - seen > STALLED_AFTER
    return dg.AssetCheckResult(
        passed=not (silent and (undecided_inputs or overdue_deliveries)),
        metadata={
            "undecided": undecided_inputs,
            f"overdue by {_minutes(STALLED_AFTER)}": overdue_deliveries,
            **({"last sign of the loop": dg.MetadataValue.timestamp(seen)} if seen else {}),
        },
    )


@dg.asset_check(
    asset="ticks",
    description=(
        f"The loop gave a sign in the last {_minutes(FRESH_FOR)}, by a row of `ticks` or by its status file. Only a warning, "
        "as it may have been stopped on purpose. It makes no difference whether a shift or `redrive run` runs the loop."
    ),
)
def ticks_are_fresh(redrive: Redrive) -> dg.AssetCheckResult:
    seen = last_sign(redrive)
    return dg.AssetCheckResult(
        passed=seen is not None and wall_clock() - seen <= FRESH_FOR,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"last sign of the loop": dg.MetadataValue.timestamp(seen)} if seen else {"last sign of the loop": "none"},
    )


@dg.asset_check(
    asset="dead_letter_rate",
    description=(
        "No topic's messages died at an unusual rate in this hour or the last: a warning on a change, not on a count. "
        "`dead_letter_rate` defines what is usual."
    ),
)
def dead_letters_come_at_their_usual_rate(redrive: Redrive) -> dg.AssetCheckResult:
    hour = wall_clock().replace(minute=0, second=0, microsecond=0)
    unusual = read_unusual(redrive.sql, hour - timedelta(hours=1))
    return dg.AssetCheckResult(
        passed=not unusual,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={
            "unusual hours": len(unusual),
            **({"which": "; ".join(f"{one.topic}: {one.died}, {one.usual:g} is usual" for one in unusual)} if unusual else {}),
        },
    )


@dg.asset_check(
    asset="events",
    description=(
        "The loop's status file names no source that can't be read. The loop keeps trying such a source. Until it is read, its reports "
        "are not decided, and no message of the topics that it speaks for becomes `recovered`."
    ),
)
def every_source_is_read(redrive: Redrive) -> dg.AssetCheckResult:
    status = read_status(redrive.settings.status_file)
    unread = {entry.what: entry.why for entry in status.health if entry.kind in UNREAD} if status else {}
    return dg.AssetCheckResult(passed=not unread, metadata={"unread": len(unread), **unread})


@dg.asset_check(
    asset="dead_letters",
    description=(
        "No dead letter is open, so nobody has to act. A warning, with the number of open ones by topic and owner. A redrive or a discard "
        "closes a dead letter."
    ),
)
def no_dead_letter_is_open(redrive: Redrive) -> dg.AssetCheckResult:
    rows = redrive.sql(
        f"""
        select
            coalesce(owner, '(nobody)') as owner, original_topic, count(*) as open, min(dead_at) as since,
            sum(count(*)) over () as all_open
        from dead_letters
        where state = 'open'
        group by owner, original_topic
        order by open desc, original_topic, owner
        limit {_OPEN_SHOWN}
        """
    )
    table = dg.TableMetadataValue(
        records=[
            dg.TableRecord(
                {
                    "topic": row["original_topic"] or "",
                    "owner": row["owner"],
                    "open": int(row["open"]),
                    "oldest": f"{row['since']:%Y-%m-%d %H:%M:%S} UTC",
                }
            )
            for row in rows
        ],
        schema=dg.TableSchema([dg.TableColumn(name, kind) for name, kind in _OPEN_COLUMNS]),
    )
    return dg.AssetCheckResult(
        passed=not rows,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"open": int(rows[0]["all_open"]) if rows else 0, **({"by topic and owner": table} if rows else {})},
    )


CHECKS = (
    nothing_is_lost,
    nothing_is_early,
    no_dead_message_is_without_its_copy,
    no_report_was_missed,
    every_source_is_read,
    dead_letters_come_at_their_usual_rate,
    no_dead_letter_is_open,
    the_loop_is_not_stalled,
    ticks_are_fresh,
)
