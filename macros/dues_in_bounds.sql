{#- Restricts a due time to the fold's bounds, as literals; false where the fold's inputs answer nothing. -#}
{% macro dues_in_bounds(due_at) -%}
    {%- set bounds = fold_bounds() -%}
    {%- if bounds.due_from is none -%}
        false
    {%- else -%}
        {{ due_at }} between timestamp_micros({{ bounds.due_from }}) and timestamp_micros({{ bounds.due_to }})
    {%- endif -%}
{%- endmacro %}
