{#- The scope that a blocking error holds up, as the key of its gate: group:topic, or group:topic/partition where order matters. -#}
{% macro gate_scope(gate, consumer_group, topic, partition) -%}
    concat(
        coalesce({{ consumer_group }}, ''), ':', {{ topic }},
        case when {{ gate }} = 'partition' then concat('/', {{ partition }}) else '' end
    )
{%- endmacro %}
