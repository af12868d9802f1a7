{#- The name of a sequence: `group:topic/partition/id`, the key of its record in the topic of sequences. -#}
{% macro sequence_key(consumer_group, topic, partition, sequence) -%}
    concat(coalesce({{ consumer_group }}, ''), ':', {{ topic }}, '/', {{ partition }}, '/', {{ sequence }})
{%- endmacro %}
