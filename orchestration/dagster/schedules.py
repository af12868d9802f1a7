"""The schedules. All are off until a user turns them on: beside `redrive run`, no shifts are needed."""

import dagster as dg

from orchestration.dagster.jobs import SHIFT_MINUTES, maintenance, report, shift, triage

# The states of runs that have not ended.
_IN_PROGRESS = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)

# A shift runs the loop for SHIFT_MINUTES after Spark has started. Two minutes are left for the start and the end: a shift that is still
# running when the next is to begin costs a whole interval. It must divide 60.
_SHIFT_INTERVAL = round(SHIFT_MINUTES) + 2


@dg.schedule(
    name="shifts",
    job=shift,
    cron_schedule=f"*/{_SHIFT_INTERVAL} * * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description=f"A shift of {SHIFT_MINUTES:g} minutes, every {_SHIFT_INTERVAL} minutes. Skipped if the one before has not ended.",
)
def shifts(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    if context.instance.get_runs(dg.RunsFilter(job_name=shift.name, statuses=_IN_PROGRESS), limit=1):
        # without this, runs would pile up, and run the loop for hours after the schedule was turned off
        return dg.SkipReason("the shift before has not ended")
    return dg.RunRequest()


hourly_report = dg.ScheduleDefinition(
    name="hourly_report",
    job=report,
    cron_schedule="5 * * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Marts, the report on dead letters, and all checks, each hour.",
)

nightly_maintenance = dg.ScheduleDefinition(
    name="nightly_maintenance",
    job=maintenance,
    cron_schedule="30 3 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Table maintenance, each night.",
)

hourly_triage = dg.ScheduleDefinition(
    name="hourly_triage",
    job=triage,
    cron_schedule="20 * * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Redrives, discards and purges dead letters as the rules say, each hour.",
)

SCHEDULES = (shifts, hourly_report, nightly_maintenance, hourly_triage)
