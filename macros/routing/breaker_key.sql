{#- The key of the circuit breaker that a blocking error opens: group:topic, or group:topic/partition where order matters.

    per: `topic` or `partition`, as the route says. -#}
{% macro breaker_key(per, consumer_group, topic, partition) -%}
    concat(
        coalesce({{ consumer_group }}, ''), ':', {{ topic }},
        case when {{ per }} = 'partition' then concat('/', {{ partition }}) else '' end
    )
{%- endmacro %}
