{#- The key of the circuit breaker that a blocking error opens, and that holds a retry back: group:topic, or group:topic/partition.

    per: `topic` or `partition`, as the route says. -#}
{% macro breaker_key(per, consumer_group, topic, partition) -%}
    concat(
        coalesce({{ consumer_group }}, ''), ':', {{ topic }},
        case when {{ per }} = 'partition' then concat('/', {{ partition }}) else '' end
    )
{%- endmacro %}
