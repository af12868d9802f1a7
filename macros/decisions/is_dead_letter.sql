{#- Whether a decision makes its message dead: by a dead letter that is sent, by adopting one that lies in a topic already, or by parking the message
    in the tables.

    decision: alias of decisions in the query. -#}
{% macro is_dead_letter(decision) -%}
    ({{ decision }}.kind <=> 'dead_letter' or {{ decision }}.decision in ('adopted', 'parked'))
{%- endmacro %}
