{#- The message that a delivery is about: it is named after it. -#}
{% macro message_of(delivery_id) -%}
    regexp_extract({{ delivery_id }}, '^(.*)#[^#]*\\z', 1)
{%- endmacro %}
