{#- At the beginning of a query of decide_bounds: the query finds nothing if this slot is false or has no value, so the loop doesn't run it. A `dbt run`
    does, and the query has the slot as a condition, too.

    name (not SQL). -#}
{% macro only_if(name) -%}
    /*:only if {{ name }}:*/
{%- endmacro %}
