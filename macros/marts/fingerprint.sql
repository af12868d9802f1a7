{#- A short hash of error class and error pattern: the same for errors with the same cause. -#}
{% macro fingerprint(error_class, pattern) -%}
    {{ short_hash("concat_ws('\\n', coalesce(" ~ error_class ~ ", ''), " ~ pattern ~ ")") }}
{%- endmacro %}
