"""What dbt gives to a template, for the linter: enough of it to render every model without dbt, and without a warehouse.

sqlfluff makes each name in here one of its templates' names. `execute` is false, as while dbt parses: nothing is looked up, and a model
shows the branch that it does its work in.
"""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from jinja2 import pass_context
from jinja2.runtime import Context

_PROJECT = yaml.safe_load((Path(__file__).resolve().parents[3] / "dbt_project.yml").read_text(encoding="utf-8"))

execute = False
flags = SimpleNamespace(WHICH="lint")
target = SimpleNamespace(schema="redrive")
invocation_id = "lint"
model = {"columns": {"batch": {"name": "batch", "data_type": "bigint"}}}
api = SimpleNamespace(Relation=SimpleNamespace(create=lambda schema, identifier: f"{schema}.{identifier}"))


def var(name: str) -> Any:
    """A var of dbt_project.yml."""
    return _PROJECT["vars"][name]


def env_var(name: str, default: str | None = None) -> str | None:
    return os.environ.get(name, default)


def load_relation(relation: object) -> object:
    return relation


@pass_context
def dialect(context: Context, name: str) -> Any:
    """As macros/dialects/dialect.sql: dbt has its templates' names in `context`, the linter has them here."""
    return context.resolve(f"dialect_{name.replace('-', '_')}")()


@pass_context
def dead_letter_headers_of(context: Context, profile: str) -> Any:
    """As macros/dead_letter_headers/dead_letter_headers_of.sql."""
    return context.resolve(f"dead_letter_headers_{profile.replace('-', '_')}")()
