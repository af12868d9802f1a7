{#- The decisions that make a row the successor of the delivery it answers: everything but what charges and sends nothing. -#}
{% macro succeeding_decisions() -%}
    ('retry', 'dead_letter', 'adopted', 'parked', 'dropped', 'redrive', 'cancelled')
{%- endmacro %}
