{#- Where a redrive goes: to the topic that the operator names, to the original topic (`original`), or where a retry would go (`retry`, or null).
    Null where the original topic is unknown.

    wanted: what the operator says. has_no_origin: only the topic is known in which the failure was reported. -#}
{% macro redrive_destination(wanted, has_no_origin, retry_topic, original_topic, consumer_group, error_kind) -%}
    case
        when coalesce({{ wanted }}, 'retry') not in ('retry', 'original') then {{ wanted }}
        when {{ has_no_origin }} then null
        when {{ wanted }} = 'original' then {{ original_topic }}
        else {{ retry_destination(retry_topic, original_topic, consumer_group, error_kind) }}
    end
{%- endmacro %}
