{#- Whether something (`stack`, `message`, `payload`) is kept, and shown, under a privacy. Without one, everything is.

    what (not SQL): `stack`, `message` or `payload`. privacy: a struct of `privacy_read`, or null. -#}
{% macro privacy_keeps(what, privacy) -%}
    coalesce({{ privacy }}.{{ what }} = 'keep', true)
{%- endmacro %}
