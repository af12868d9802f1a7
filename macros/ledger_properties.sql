{#- Iceberg's table properties for tables that grow by a small commit every few seconds: old metadata files are dropped with each
    commit, one file per partition and commit, and commits that meet another writer are tried again for a while. -#}
{% macro ledger_properties() %}
    {{ return({
        'format-version': '2',
        'write.metadata.delete-after-commit.enabled': 'true',
        'write.metadata.previous-versions-max': '20',
        'write.distribution-mode': 'hash',
        'commit.retry.num-retries': '10',
    }) }}
{% endmacro %}
