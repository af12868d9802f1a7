{#- The key of a message, from that of its report: the same, but for a dialect that puts the message's key into a Protocol Buffers message.

    says: the description of the dialect, as in `rules.dialects`; null: unknown. key_fields: what protobuf_fields returns for the key. -#}
{% macro dialect_key(says, key, key_fields) -%}
    case
        when {{ says }}.key_field is not null
            then try_element_at(filter({{ key_fields }}, f -> f.number = {{ says }}.key_field), -1).bytes
        else {{ key }}
    end
{%- endmacro %}
