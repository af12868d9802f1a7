{#- Whether a privacy says `keep` for the stack trace, the error message or the payload. Without a privacy, everything is kept and shown.

    what (not SQL): `stack`, `message` or `payload`. privacy: a struct of `privacy_read`, or null. -#}
{% macro privacy_keeps(what, privacy) -%}
    coalesce({{ privacy }}.{{ what }} = 'keep', true)
{%- endmacro %}
