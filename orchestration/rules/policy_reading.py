"""What the SQL makes of policies, which may not be loaded yet, and what is wrong with those that it can't read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestration.rules.policies import why_not
from orchestration.rules.routing import view
from orchestration.rules.seed_rows import Seeds

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from orchestration.tables.dbt import Dbt


@dataclass(frozen=True)
class PolicyProblem:
    """A policy that can't be parsed, and the first of its clauses that isn't understood."""

    name: str
    definition: str
    clause: str


@dataclass(frozen=True)
class PolicyReading:
    """problems: policies that can't be parsed. processing_only: by policy, the clause that a publish_policy must not have."""

    problems: tuple[PolicyProblem, ...]
    processing_only: Mapping[str, str]


def ask(spark: SparkSession, dbt: Dbt, policies: Mapping[str, str], statement: str, **delay: str) -> list[Row]:
    """Runs a statement over policies, given by name: {read} stands for the parsed policies, {delay} for the delay after a failure.

    delay: SQL for the number of the failure (`failures`) and the policy (`policy`). Raises DbtError.
    """
    read = dbt.compiled("{{ read_policies('policies_to_read') }}")
    wait = ""
    if delay:
        arguments = f"{json.dumps(delay['failures'])}, {json.dumps(delay['policy'])}"
        wait = dbt.compiled("{{ backoff_delay_ms(" + arguments + ") }}")
    with view(spark.createDataFrame(list(policies.items()), "policy string, definition string"), "policies_to_read"):
        rows: list[Row] = spark.sql(statement.format(read=f"({read})", delay=wait)).collect()
    return rows


def read_policies(spark: SparkSession, dbt: Dbt, policies: Mapping[str, str]) -> PolicyReading:
    """Parses policies, given by name, with the SQL. Raises DbtError."""
    rows = ask(spark, dbt, policies, "select policy, definition, not_understood, processing_only from {read} order by policy")
    return PolicyReading(
        tuple(PolicyProblem(row["policy"], row["definition"], row["not_understood"]) for row in rows if row["not_understood"] is not None),
        {row["policy"]: row["processing_only"] for row in rows if row["processing_only"] is not None},
    )


def definitions(seeds: Seeds) -> dict[str, str]:
    """The policies of the seeds, by name."""
    return {row["policy"]: row["definition"] for row in seeds.rows["retry_policies"]}


def problems(directory: Path, seeds: Seeds, reading: PolicyReading) -> Iterator[str]:
    """A line for each policy that the SQL can't parse, or that a route uses as publish_policy but can't. directory: that of the files.

    With one of them, no seeds are loaded: the model `rules` stops.
    """
    for row in seeds.rows["routes"]:
        if row["publish_policy"] in reading.processing_only:
            yield (
                f"{directory / 'routes.csv'}:{row.line}: publish_policy is {row['publish_policy']!r}, which has "
                f"{reading.processing_only[row['publish_policy']]}: failed sends are bounded by attempts alone; name a policy without it"
            )
    lines = {row["policy"]: row.line for row in seeds.rows["retry_policies"]}
    for problem in reading.problems:
        yield f"{directory / 'retry_policies.csv'}:{lines[problem.name]}: definition: {why_not(problem.definition, problem.clause)}"
