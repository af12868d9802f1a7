"""What decide runs have written, to compare the runs of the same inputs."""

from __future__ import annotations

from tests.dbt.harness import Home


def decisions_after(home: Home, batch: int) -> list[str]:
    """Every row that was written for later batches, as text, copies included; without the decide step that wrote it."""
    return sorted(
        repr(sorted((name, value) for name, value in row.asDict().items() if name != "decide_run"))
        for row in home.read("deliveries")
        if row["batch"] > batch
    )
