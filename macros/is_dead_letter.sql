{#- Whether a decision makes its message dead: by a dead letter that we send, or one that was adopted, which lies in its topic already. -#}
{% macro is_dead_letter(decision) -%}
    ({{ decision }}.kind <=> 'dead_letter' or {{ decision }}.decision = 'adopted')
{%- endmacro %}
