{#- What a dialect's macro says, as one struct. `problems` names the headers that are there and can't be read. -#}
{% macro dialect_struct(name, headers) -%}
    {%- set says = context['dialect_' ~ name](headers) -%}
    named_struct(
        {%- for hop in ['named', 'origin'] %}
        '{{ hop }}_topic', {{ says[hop].topic }},
        '{{ hop }}_partition', {{ says[hop].partition }},
        '{{ hop }}_offset', {{ says[hop].offset }},
        {%- endfor %}
        'origin_timestamp', {{ says.origin_timestamp }},
        'consumer_group', {{ says.consumer_group }},
        'failed_at', {{ says.failed_at }},
        'error_class', {{ utf8_repaired(says.error_class, 512) }},
        'error_message', {{ utf8_repaired(says.error_message, var('max_error_message_bytes')) }},
        'error_stack', {{ utf8_repaired(says.error_stack, var('max_error_stack_bytes')) }},
        'problems', array_compact(array(
            {%- for header, decoded in says.readable.items() %}
            case when exists({{ headers }}, h -> h.key = '{{ header }}') and {{ decoded }} is null then '{{ header }}' end
            {{- ',' if not loop.last }}
            {%- endfor %}
        ))
    )
{%- endmacro %}
