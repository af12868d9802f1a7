{#- Whether a decision makes its message dead: by a dead letter that we send, by one that was adopted, which lies in its topic already, or by
    parking it in the tables.

    decision: alias of decisions in the query. -#}
{% macro is_dead_letter(decision) -%}
    ({{ decision }}.kind <=> 'dead_letter' or {{ decision }}.decision in ('adopted', 'parked'))
{%- endmacro %}
