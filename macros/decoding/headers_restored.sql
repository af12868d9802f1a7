{#- The message's own headers that a record has inside a JSON value, where its dialect says so: a list of objects with `key`, `value`, and `encoding` for a
    value in base64, as the profile `safi` writes it. Null if there are none, or none that can be read. -#}
{% macro headers_restored(says, headers) -%}
    transform(
        filter(from_json(
            cast({{ dialect_field('message_headers', says, headers) }}.bytes as string), 'array<struct<key: string, value: string, encoding: string>>'
        ), h -> h.key is not null),
        h -> struct(h.key as key, case when h.encoding = 'base64' then try_to_binary(h.value, 'base64') else cast(h.value as binary) end as value)
    )
{%- endmacro %}
