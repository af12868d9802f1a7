{#- The destination of a redrive: a topic that the operator names, the original topic (`original`), or that of a retry (`retry`, or null). Null if the
    operator names no topic and the original topic is unknown.

    wanted: what the operator says. has_no_origin: the original topic is unknown. -#}
{% macro redrive_destination(wanted, has_no_origin, retry_topic, original_topic, consumer_group, error_kind) -%}
    case
        when coalesce({{ wanted }}, 'retry') not in ('retry', 'original') then {{ wanted }}
        when {{ has_no_origin }} then null
        when {{ wanted }} = 'original' then {{ original_topic }}
        else {{ retry_destination(retry_topic, original_topic, consumer_group, error_kind) }}
    end
{%- endmacro %}
