{#- A condition on a due time: within bounds, as literals; false if there are none, so that Spark leaves the whole branch of the statement out.

    due_at (not SQL): the name of the column, `due_at` or `prior_due`. bounds (not SQL): `due`, those of the deliveries that the decide run's inputs may
    answer, by the hour, or `payload`, those of what it redrives. -#}
{% macro dues_in_bounds(due_at, bounds='due') -%}
    {{ slot({'due': 'are_due', 'payload': 'have_payloads'}[bounds], 'false') }}
    and {{ due_at }} between timestamp_micros({{ slot(bounds ~ '_from') }}) and timestamp_micros({{ slot(bounds ~ '_to') }})
    {%- if bounds == 'due' %}
    and {{ slot(due_at ~ '_hours', 'true') }}
    {%- endif %}
{%- endmacro %}
