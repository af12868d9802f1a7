{#- The decisions of operators that annotate a dead letter and send nothing, as a SQL list: they don't change the state of the message. -#}
{% macro operator_decisions() -%}
    {{ decisions_where(order='dead_letter', sends='') }}
{%- endmacro %}
