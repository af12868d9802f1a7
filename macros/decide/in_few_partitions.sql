{#- A hint for the rows that a decide run begins with: as many partitions as profiles.yml shuffles into. With one partition, as on a laptop, none of
    the decide step's windows and joins needs an exchange: 3 stages instead of 8. -#}
{% macro in_few_partitions() -%}
    /*+ coalesce({{ env_var('REDRIVE_SHUFFLE_PARTITIONS', '1') }}) */
{%- endmacro %}
