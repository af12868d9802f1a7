{#- Restricts a due time to bounds, as literals: those of the deliveries that the decide step's inputs may answer, or others (`payload_bounds()`); false
    where there are none.

    bounds: a dictionary of `due_from` and `due_to`. -#}
{% macro dues_in_bounds(due_at, bounds=none) -%}
    {%- set bounds = lookup_bounds() if bounds is none else bounds -%}
    {%- if bounds.due_from is none -%}
        false
    {%- else -%}
        {{ due_at }} between timestamp_micros({{ bounds.due_from }}) and timestamp_micros({{ bounds.due_to }})
    {%- endif -%}
{%- endmacro %}
