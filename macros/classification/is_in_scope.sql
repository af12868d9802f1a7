{#- Whether a rule holds for a source, topic and group. -#}
{% macro is_in_scope(rule, source, topic, consumer_group) -%}
    (
        ({{ rule }}.source = '*' or {{ rule }}.source <=> {{ source }})
        and ({{ rule }}.consumer_group = '*' or {{ rule }}.consumer_group <=> {{ consumer_group }})
        and coalesce({{ topic_matches(topic, rule ~ '.topic') }}, false)
    )
{%- endmacro %}
