{#- The id of a message: `group:topic/partition/offset` of the original record. The group may be unknown: `:orders/0/17`. -#}
{% macro message_id(consumer_group, topic, partition, offset) -%}
    concat(coalesce({{ consumer_group }}, ''), ':', {{ topic }}, '/', {{ partition }}, '/', {{ offset }})
{%- endmacro %}
