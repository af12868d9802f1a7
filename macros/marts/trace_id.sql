{#- The id of a trace, from the text of a header or a payload: of W3C's `traceparent` and B3's single header the part that is the trace id, else the
    whole text. -#}
{% macro trace_id(text) -%}
    coalesce(
        nullif(regexp_extract({{ text }}, '^(?:[0-9a-f]{2}-)?([0-9a-f]{32}|[0-9a-f]{16})-[0-9a-f]{16}(?:-|$)', 1), ''),
        {{ text }}
    )
{%- endmacro %}
