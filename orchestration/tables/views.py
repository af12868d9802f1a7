"""Makes the marts' views without analysing them.

`create view` analyses a query with all views below it, to learn the types of its columns: more than half of the time that `dbt run` takes
for new tables. The marts have contracts, so the catalog can be told the types. `dbt run` makes the same views, and compares them with their
contracts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from orchestration.tables.dbt import Compiled, Dbt, DbtError
from orchestration.tables.spark import default_catalog, in_short, java_identifier, java_strings

# Not the other views with a contract, which the publisher reads: a contract doesn't say which fields are never null, and Spark converts
# what the catalog calls nullable and the query doesn't.
MARTS: Final = "path:models/marts,config.materialized:view,config.contract.enforced:true"
"""The models whose views are made here, as dbt selects them."""


def make_tables(spark: SparkSession, dbt: Dbt, schema: str) -> None:
    """Loads the seeds, and makes all tables and views. Raises DbtError."""
    dbt.run("seed")
    dbt.run("run", exclude=[MARTS], variables={"watermark": 0, "upto": 0})
    create_views(spark, schema, dbt.compiled_models(MARTS))


def create_views(spark: SparkSession, schema: str, models: Iterable[Compiled]) -> None:
    """Creates views as their contracts say, or replaces them. Raises DbtError, as the models are dbt's."""
    catalog = default_catalog(spark)
    for model in models:
        told = _told(spark, schema, model)
        try:
            if catalog.viewExists(told[0]):
                catalog.replaceView(*told)
            else:
                catalog.createView(spark._jvm.org.apache.spark.sql.connector.catalog.ViewInfo(*told))  # type: ignore[union-attr]
        except (Py4JJavaError, PySparkException) as error:
            raise DbtError(f"{model.name}: {in_short(error)}") from error


def _told(spark: SparkSession, schema: str, model: Compiled) -> tuple[Any, ...]:
    """What a catalog is told of a view: as Spark tells it for the statement of the macro spark__create_view_as."""
    java = spark._jvm
    assert java is not None
    names = [column.name for column in model.columns]
    comments = [column.description for column in model.columns]
    types = StructType()
    for column in model.columns:
        types.add(column.name, DataType.fromDDL(column.type), True, {"comment": column.description})
    version = f"Spark {pyspark.__version__}"
    properties = java.java.util.HashMap()
    for name, value in (("comment", model.description), ("create_engine_version", version), ("engine_version", version)):
        properties.put(name, value)
    return (
        java_identifier(spark, f"{schema}.{model.name}"),
        f"select {', '.join(names)} from (\n{model.sql}\n) as selected",
        spark.conf.get("spark.sql.defaultCatalog"),
        java_strings(spark, []),
        java.org.apache.spark.sql.types.DataType.fromJson(types.json()),
        java_strings(spark, names),
        java_strings(spark, names),
        java_strings(spark, comments),
        properties,
    )
