{#- A hash of key and value, to tell two contents apart. It includes their lengths: null and empty differ, as do two records with the same bytes that
    are divided differently between key and value. -#}
{% macro content_hash(key, value) -%}
    left(sha2(concat(
        cast(concat_ws(',', coalesce(length({{ key }}), -1), coalesce(length({{ value }}), -1)) as binary),
        coalesce({{ key }}, x''), coalesce({{ value }}, x'')
    ), 256), 32)
{%- endmacro %}
