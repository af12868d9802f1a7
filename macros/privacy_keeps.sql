{#- Whether something (`stack`, `message`, `payload`) is kept, and shown, under a privacy. Without one, everything is. -#}
{% macro privacy_keeps(what, privacy) -%}
    coalesce({{ privacy }}.{{ what }} = 'keep', true)
{%- endmacro %}
