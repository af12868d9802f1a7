{#- Why a report may have been refused that can be told again: the rules of that day had no place for it. -#}
{% macro redrivable_refusals() -%}
    ('no_route', 'destination_not_legal', 'destination_is_a_source', 'destination_is_internal', 'unknown_source', 'not_spoken_for')
{%- endmacro %}
