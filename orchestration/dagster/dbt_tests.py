"""The project's dbt tests as asset checks: dbt runs them in the process of the run, on the existing tables."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import dagster as dg

from orchestration.dagster.manifest import Manifest
from orchestration.dagster.resource import Redrive, our_errors


def dbt_tests(manifest: Manifest, assets: Iterable[dg.AssetKey]) -> dg.AssetChecksDefinition:
    """One check for each test, on the model or seed that it is attached to; else on the first asset that it reads."""
    known = {key.to_user_string() for key in assets}
    tests = [node for node in manifest["nodes"].values() if node["resource_type"] == "test"]
    specs = [
        dg.AssetCheckSpec(test["name"], asset=_asset_of(test, known), description=_description(test))
        for test in sorted(tests, key=lambda test: str(test["name"]))
    ]

    @dg.multi_asset_check(name="test_with_dbt", specs=specs, can_subset=True)
    def test_with_dbt(context: dg.AssetCheckExecutionContext, redrive: Redrive) -> Iterator[dg.AssetCheckResult]:
        selected = sorted(context.selected_asset_check_keys, key=lambda key: key.name)
        with our_errors():
            redrive.require_tables()
            found = redrive.dbt.test([key.name for key in selected])
        for key in selected:
            outcome = found[key.name]
            yield dg.AssetCheckResult(
                passed=outcome.passed,
                asset_key=key.asset_key,
                check_name=key.name,
                severity=dg.AssetCheckSeverity.WARN if outcome.warns else dg.AssetCheckSeverity.ERROR,
                metadata={"failures": outcome.failures, **({"message": outcome.message} if outcome.message else {})},
            )

    return test_with_dbt


def _asset_of(test: Mapping[str, Any], known: set[str]) -> str:
    """The asset of a test. Raises LookupError if there is none."""
    nodes = [test["attached_node"]] if test.get("attached_node") else test["depends_on"]["nodes"]
    names = [str(node).rpartition(".")[2] for node in nodes]
    for name in names:
        if name in known:
            return name
    raise LookupError(
        f"no asset for dbt's test {test['name']}: it reads {', '.join(names) or 'no model'}; let it read one with a table or view"
    )


def _description(test: Mapping[str, Any]) -> str:
    """The test's description, or the header of its file, or its name in words."""
    header = re.match(r"(?:--[^\n]*\n)+", test["raw_code"])
    if test["description"]:
        return str(test["description"]).strip()
    if header:
        return " ".join(line.removeprefix("--").strip() for line in header[0].splitlines())
    return str(test["name"]).replace("_", " ")
