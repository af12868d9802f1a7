{#- Restricts a due time to those of the dead letters that keep the payloads of what is redriven, as literals; false where none is. -#}
{% macro payload_dues_in_bounds(due_at) -%}
    {%- set bounds = payload_bounds() -%}
    {%- if bounds.due_from is none -%}
        false
    {%- else -%}
        {{ due_at }} between timestamp_micros({{ bounds.due_from }}) and timestamp_micros({{ bounds.due_to }})
    {%- endif -%}
{%- endmacro %}
