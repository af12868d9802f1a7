"""The SQLite file of the catalog, and the move of its entries from the names of version 0.1.0 to the present ones.

Up to version 0.1.0 the catalog and the schema were both called `redrive` in profiles.yml. Then Spark reads `redrive.deliveries` as a
catalog and a table, so the tables were in the empty namespace, which PyIceberg and most other readers can neither list nor name. Each row
of a JDBC catalog has the catalog's name and a namespace, so both are changed there, in one transaction. The files of the tables stay where
they are.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from orchestration.logs import event
from orchestration.settings import Settings
from orchestration.status import is_alive, read_status
from orchestration.tables.spark import catalog_file, session_configuration

log = logging.getLogger(__name__)

# The name of the catalog up to version 0.1.0, and of the namespace in which its tables belong.
_BEFORE: Final = "redrive"

_LOCKED_SECONDS: Final = 60


class CatalogError(Exception):
    """The tables are not where this version reads them. The message says what to do."""

    exit_code = 2


def default_catalog(project: Path) -> str:
    """The name of the tables' catalog in profiles.yml."""
    return session_configuration(project).get("spark.sql.defaultCatalog", "spark_catalog")


def left_behind(settings: Settings) -> bool:
    """Whether the catalog's file has tables under the names of version 0.1.0, and none in use under the present names."""
    file = catalog_file(settings)
    if file is None or not file.is_file():
        return False
    try:
        # `ro` writes nothing. If the file can't be read, as after a crash in a commit, Spark repairs it, or reports what is wrong with it
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=_LOCKED_SECONDS)) as catalog:
            return _is_left_behind(catalog, default_catalog(settings.project))
    except sqlite3.Error:
        return False


def without_tables(settings: Settings) -> str | None:
    """Why there are no tables, if that is known without Spark; else None."""
    file = catalog_file(settings)
    missing = file is not None and not file.is_file()
    return missing_tables(settings) if missing or left_behind(settings) else None


def missing_tables(settings: Settings) -> str:
    """Why a command finds no tables, and what makes them."""
    if left_behind(settings):
        return (
            f"the tables under {settings.home} have the names of version 0.1.0: start this version's loop once, by `redrive run` or "
            "`redrive tick`, which moves them"
        )
    return f"there are no tables yet under {settings.home}: `redrive run`, `redrive tick` or `dbt build` makes them"


def move_tables(settings: Settings) -> bool:
    """Gives tables of version 0.1.0 their present names, if there are any; returns whether it did.

    It moves all of them or none, even if it crashes. A loop of version 0.1.0 no longer finds them, so its appends fail. Raises
    CatalogError while such a loop runs: it would go on without ever learning that it was replaced.
    """
    file = catalog_file(settings)
    if file is None or not file.is_file():
        return False
    name = default_catalog(settings.project)
    with closing(sqlite3.connect(file, timeout=_LOCKED_SECONDS, isolation_level=None)) as catalog:
        if not _is_left_behind(catalog, name):
            if _has_entries(catalog, _BEFORE) and name != _BEFORE:
                event(log, logging.WARNING, "older_tables_ignored", file=file, version="0.1.0")
            return False
        refuse_beside_a_loop(settings)
        # views contain the name of their catalog: without the digest, the next start makes them anew, even if this process ends before
        settings.project_digest.unlink(missing_ok=True)
        catalog.execute("begin immediate")
        try:
            _rename(catalog, name)
            catalog.execute("commit")
        except sqlite3.IntegrityError as error:
            catalog.execute("rollback")
            raise CatalogError(
                f"{file} has a table of one name both in the empty namespace and in the namespace {_BEFORE} of the catalog {_BEFORE}: "
                "drop or rename the one that redrive doesn't use, and start again"
            ) from error
        except BaseException:
            catalog.execute("rollback")
            raise
    event(log, logging.INFO, "tables_moved", file=file, namespace=_BEFORE, catalog=name)
    return True


def _is_left_behind(catalog: sqlite3.Connection, name: str) -> bool:
    if name == _BEFORE or not _has_entries(catalog, _BEFORE):
        return False
    # `dbt build` before the first loop makes empty tables, which may be replaced; one that was written to has a previous metadata file
    used = "select 1 from iceberg_tables where catalog_name = ? and table_name = 'ticks' and previous_metadata_location is not null"
    return catalog.execute(used, (name,)).fetchone() is None


def _has_entries(catalog: sqlite3.Connection, name: str) -> bool:
    if catalog.execute("select 1 from sqlite_master where name = 'iceberg_tables'").fetchone() is None:
        return False
    return catalog.execute("select 1 from iceberg_tables where catalog_name = ?", (name,)).fetchone() is not None


def _rename(catalog: sqlite3.Connection, name: str) -> None:
    """Moves tables of the empty namespace into the namespace `redrive`; those of other namespaces keep theirs."""
    for table, namespace, entry in (
        ("iceberg_tables", "table_namespace", "table_name"),
        ("iceberg_namespace_properties", "namespace", "property_key"),
    ):
        meant = f"case {namespace} when '' then '{_BEFORE}' else {namespace} end"
        # tables that a `dbt build` made under the present names before this: nothing was written to them
        catalog.execute(
            f"delete from {table} where catalog_name = ? and ({namespace}, {entry}) in "
            f"(select {meant}, {entry} from {table} where catalog_name = ?)",
            (name, _BEFORE),
        )
        catalog.execute(f"update {table} set catalog_name = ?, {namespace} = {meant} where catalog_name = ?", (name, _BEFORE))


def refuse_beside_a_loop(settings: Settings) -> None:
    """Raises CatalogError while another loop runs with this home, because its tables are about to be renamed or migrated."""
    status = read_status(settings.status_file)
    if status is not None and is_alive(status, settings.home):
        raise CatalogError(
            f"a loop is running with its state under {settings.home} (process {status.pid}, last tick at {status.at}), "
            f"and this version must migrate its tables first: stop that loop, then start this one again. If that process is no loop, "
            f"remove {settings.status_file}"
        )
