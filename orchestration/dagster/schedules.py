"""What may start by itself. All of it is off until somebody switches it on: whoever runs `redrive run` needs no shifts."""

import dagster as dg

from orchestration.dagster.jobs import SHIFT_MINUTES, maintenance, report, shift, triage

# What runs or is about to.
_IN_PROGRESS = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)

# A shift begins a minute after the one before has ended: that is what its start may take.
_SHIFT_INTERVAL = round(SHIFT_MINUTES) + 1


@dg.schedule(
    name="shifts",
    job=shift,
    cron_schedule=f"*/{_SHIFT_INTERVAL} * * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description=f"A shift of {SHIFT_MINUTES:g} minutes each {_SHIFT_INTERVAL}. Left out while the one before is still at it.",
)
def shifts(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    if context.instance.get_runs(dg.RunsFilter(job_name=shift.name, statuses=_IN_PROGRESS), limit=1):
        # they would pile up, and turn the loop for hours after somebody stopped it
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
    description="What redrive_rules sends again by itself, each hour. Without rules it does nothing.",
)

SCHEDULES = (shifts, hourly_report, nightly_maintenance, hourly_triage)
