{#- The same for errors of one class that have their pattern in common. -#}
{% macro fingerprint(error_class, pattern) -%}
    {{ short_hash("concat_ws('\\n', coalesce(" ~ error_class ~ ", ''), " ~ pattern ~ ")") }}
{%- endmacro %}
