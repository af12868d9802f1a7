{#- The id of the message that a delivery is about: the delivery id up to its last `#`. -#}
{% macro message_of(delivery_id) -%}
    regexp_extract({{ delivery_id }}, '^(.*)#[^#]*\\z', 1)
{%- endmacro %}
