{#- What an operator decides about a dead letter without sending anything: it changes what is thought of it, not where the message stands. -#}
{% macro operator_decisions() -%}
    {{ decisions_where(order='dead_letter', sends='') }}
{%- endmacro %}
