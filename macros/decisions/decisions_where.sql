{#- The decisions whose rows in decision_reasons have the given values, as a SQL list. An empty cell is '': `sends=''` are those that send nothing.

    Arguments (not SQL): columns and values, for example `decisions_where(succeeds='yes', sends='')`. -#}
{% macro decisions_where() -%}
    {{ reasons_where(column='decision', **kwargs) }}
{%- endmacro %}
