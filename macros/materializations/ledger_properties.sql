{#- Iceberg's table properties for tables that grow by a small commit every few seconds: each commit removes old metadata files, and a commit that
    conflicts with another writer is tried again.

    Distribution: `none` is for rows that come sorted; they are written in that order, in one pass. With `hash`, Iceberg gathers the rows by partition
    first, which costs an exchange and loses the order.

    Row groups are small, so that little is read for one row, or for the few dead letters: a file that maintenance writes has up to 512 MB. The
    read.split properties let one task read many row groups, as opening a file is cheap on a local disk.

    Parquet dictionaries are small: most columns have either a handful of values or ids, for which a dictionary is useless.

    row_group_mb: the largest size of a row group, as Parquet estimates it while it writes. -#}
{% macro ledger_properties(distribution='hash', row_group_mb=8) %}
    {{ return({
        'format-version': '2',
        'redrive.version': table_version() | string,
        'write.metadata.delete-after-commit.enabled': 'true',
        'write.metadata.previous-versions-max': '20',
        'write.parquet.dict-size-bytes': '65536',
        'write.parquet.row-group-size-bytes': (row_group_mb * 1024 * 1024) | string,
        'write.distribution-mode': distribution,
        'write.spark.fanout.enabled': 'true' if distribution == 'none' else 'false',
        'commit.retry.num-retries': '10',
        'read.split.target-size': '16777216',
        'read.split.open-file-cost': '1048576',
    }) }}
{% endmacro %}
