"""The state of the loop by its tables and its status file: what is undecided or overdue, and when it last wrote something."""

from datetime import datetime

from orchestration.clock import literal
from orchestration.dagster.resource import Redrive
from orchestration.status import read_status


def watermark_of(redrive: Redrive) -> int:
    """The last batch that is decided, by the loop or by a `dbt run` beside it."""
    (row,) = redrive.sql(
        """
        select greatest((select coalesce(max(batch), 0) from deliveries), (select coalesce(max(watermark), 0) from ticks)) as watermark
        """
    )
    return int(row["watermark"])


def undecided(redrive: Redrive) -> int:
    """How many inputs have no decision. Without starts: that of a loop that ended at once stays undecided, and no message waits for it."""

    watermark = watermark_of(redrive)
    (row,) = redrive.sql(
        f"""
        select
            (select count(*) from events where batch > {watermark} and kind is distinct from 'start')
            + (select count(*) from publish_results where batch > {watermark} and outcome = 'failed') as undecided
        """
    )
    return int(row["undecided"])


def overdue(redrive: Redrive, before: datetime) -> int:
    """Open deliveries that were due before a moment. Reads from the lowest floor up: no delivery below it is open."""
    floors = redrive.sql(
        "select least(floor, array_min(transform(map_values(paused_destinations), s -> s.floor))) as floor "
        "from ticks order by batch desc limit 1"
    )
    floor = f"and due_at >= {literal(floors[0]['floor'])}" if floors else ""
    (row,) = redrive.sql(
        f"""
        select count(*) as overdue from ready
        where due_at < {literal(before)} and coalesce(not_before, due_at) < {literal(before)} {floor}
        """
    )
    return int(row["overdue"])


def last_sign(redrive: Redrive) -> datetime | None:
    """When the loop last wrote something: the last row of `ticks`, or the status file, which an idle loop writes, too."""
    (row,) = redrive.sql("select max(recorded_at) as at from ticks")
    status = read_status(redrive.settings.status_file)
    signs = [row["at"], datetime.fromisoformat(status.at) if status and status.at else None]
    return max((sign for sign in signs if sign), default=None)
