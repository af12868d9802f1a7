"""The tables: Spark, dbt, ledgers, queries and maintenance."""
