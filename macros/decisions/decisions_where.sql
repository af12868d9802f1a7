{#- The decisions whose rows in decision_reasons have these values, as a SQL list: as reasons_where. What sends nothing has '' in `sends`.

    Arguments (not SQL): columns and values, for example `decisions_where(succeeds='yes', sends='')`. -#}
{% macro decisions_where() -%}
    {{ reasons_where(column='decision', **kwargs) }}
{%- endmacro %}
