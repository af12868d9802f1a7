"""`redrive dagster`."""

from __future__ import annotations

import typer

from orchestration.cli.options import Home, settings_of


def dagster(ctx: typer.Context, home: Home = None) -> None:
    """Start Dagster on the project: `dagster dev`, with its options. DAGSTER_HOME is in the home, unless it is set already."""
    from orchestration.dagster.dev import serve

    serve(settings_of(home=home), ctx.args)
