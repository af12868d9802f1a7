{#- Whether a report refers to its message by coordinates, and does not bring its key and value: its source says so, or its dialect leaves both out.

    payload: the column of this name of the source. says: the description of the dialect, as in `rules.dialects`. -#}
{% macro is_by_reference(payload, says, key, value) -%}
    coalesce({{ payload }} = 'reference' or ({{ says }}.refers_when_empty and {{ key }} is null and {{ value }} is null), false)
{%- endmacro %}
