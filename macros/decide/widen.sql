{#- Widens due_from and due_to of the bounds to include the given ones. All are microseconds since 1970: as timestamps, dbt would return them in the
    local time of its process, without a zone.

    bounds: what lookup_bounds returns; it is changed. -#}
{% macro widen(bounds, due_from, due_to) %}
    {%- if due_from is not none -%}
        {%- set froms = [due_from | int] + ([bounds.due_from] if bounds.due_from is not none else []) -%}
        {%- set tos = [due_to | int] + ([bounds.due_to] if bounds.due_to is not none else []) -%}
        {%- do bounds.update({'due_from': froms | min, 'due_to': tos | max}) -%}
    {%- endif -%}
{% endmacro %}
