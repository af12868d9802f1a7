{#- A condition on a due time: within bounds, as literals; false if there are none. By default the bounds are those of the deliveries that the decide
    run's inputs may answer.

    bounds: a dictionary of `due_from` and `due_to`, for instance `payload_bounds()`. -#}
{% macro dues_in_bounds(due_at, bounds=none) -%}
    {%- set bounds = lookup_bounds() if bounds is none else bounds -%}
    {%- if bounds.due_from is none -%}
        false
    {%- else -%}
        {{ due_at }} between timestamp_micros({{ bounds.due_from }}) and timestamp_micros({{ bounds.due_to }})
    {%- endif -%}
{%- endmacro %}
