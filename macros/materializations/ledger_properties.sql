{#- Iceberg's table properties for tables that grow by a small commit every few seconds: old metadata files are dropped with each
    commit, one file per partition and commit, and commits that meet another writer are tried again for a while.

    Distribution `none`, for rows that come sorted: they are written in that order, in one pass. With `hash`, Iceberg gathers them by
    partition first, another exchange, and sorts them by nothing else.

    Groups of rows are small, and so is what is read for one row, or for the few that died: maintenance makes files of up to 512 MB. Opening
    a file, or going on with its next group, is cheap on a local disk, and what is planned as one task opens it once.

    Dictionaries are small: most columns here either repeat a handful of values or hold ids, for which a dictionary is built in vain.

    row_group_mb: how large a group of rows in a file may be, as Parquet counts while it writes. -#}
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
