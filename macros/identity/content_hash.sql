{#- What tells two contents apart: key and value with their lengths, so that null, empty and a byte that moved from one to the other differ. -#}
{% macro content_hash(key, value) -%}
    left(sha2(concat(
        cast(concat_ws(',', coalesce(length({{ key }}), -1), coalesce(length({{ value }}), -1)) as binary),
        coalesce({{ key }}, x''), coalesce({{ value }}, x'')
    ), 256), 32)
{%- endmacro %}
