{#- A part of the place that a delivery id names (`group:topic/partition/offset#hash`), as text: 1 for the topic, 2 for the partition, 3 for the offset. Null
    for a message that has no place in a topic.

    The column delivery_id is that of `events`. -#}
{% macro place_in_delivery(part) -%}
    nullif(regexp_extract(delivery_id, ':([^:/]+)/([0-9]+)/([0-9]+)(~[0-9a-f]{8})?#[^#]*\\z', {{ part }}), '')
{%- endmacro %}
