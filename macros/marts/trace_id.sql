{#- The id of a trace, from what a header or a payload has: of W3C's `traceparent` and of B3's single header the part that names the trace, else
    the text as it stands. -#}
{% macro trace_id(text) -%}
    coalesce(
        nullif(regexp_extract({{ text }}, '^(?:[0-9a-f]{2}-)?([0-9a-f]{32}|[0-9a-f]{16})-[0-9a-f]{16}(?:-|$)', 1), ''),
        {{ text }}
    )
{%- endmacro %}
