{#- A hint for the rows that a decide run begins with: as many partitions as profiles.yml shuffles into. In one partition, as on a laptop, rows that
    belong together are together already, so that none of the decide step's windows and joins moves them again: 3 stages instead of 8. -#}
{% macro in_few_partitions() -%}
    /*+ coalesce({{ env_var('REDRIVE_SHUFFLE_PARTITIONS', '1') }}) */
{%- endmacro %}
