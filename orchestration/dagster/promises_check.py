"""The asset check that proves the promises in the topics, too: it needs Kafka, as the loop does."""

from datetime import timedelta

import dagster as dg

from orchestration.clock import wall_clock
from orchestration.dagster.resource import Redrive

# What is judged each time: what was recorded in this time.
VERIFIED = timedelta(days=1)


@dg.asset_check(
    asset="publish_results",
    additional_deps=["events", "deliveries"],
    description="`redrive verify` for the last day: each promise is proved over the tables, and over the topics that redrive has sent to.",
)
def promises_hold(redrive: Redrive) -> dg.AssetCheckResult:
    from orchestration.operators.verification import verify

    proved = verify(redrive.settings, wall_clock() - VERIFIED)
    broken = {
        f"{finding.promise.name}: {finding.broken}": "; ".join(f"{subject}: {detail}" for subject, detail in finding.named[:5])
        for finding in proved.findings
        if finding.broken
    }
    return dg.AssetCheckResult(
        passed=not broken,
        metadata={"results": proved.results, "records": proved.records, "topics": proved.topics, **broken},
    )
