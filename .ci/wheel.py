"""What the wheel holds beside the Python code: the dbt project, and the examples that the demo runs."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# where orchestration/settings/sources.py looks for them
INSTALLED = "orchestration/_project"
PARTS = ("dbt_project.yml", "profiles.yml", "models", "macros", "dbt_project", "examples")


class WholeWheel(BuildHookInterface):  # type: ignore[misc]
    """Called by hatchling, with `standard` or `editable`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the project to a wheel. An editable installation refers to the clone: a copy would go out of date unnoticed."""
        if version == "standard":
            build_data["force_include"].update({part: f"{INSTALLED}/{part}" for part in PARTS})
