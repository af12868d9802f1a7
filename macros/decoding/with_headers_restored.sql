{#- Headers, with those of the message's own that are inside a JSON value, where the dialect says so: a list of objects with `key`, `value`, and `encoding` for
    a value in base64, as the profile `safi` writes it. What the record itself carries counts; headers of other names are added. -#}
{% macro with_headers_restored(says, headers) -%}
    coalesce(concat({{ headers }}, transform(
        filter(
            from_json(
                cast({{ dialect_field('message_headers', says, headers) }}.bytes as string), 'array<struct<key: string, value: string, encoding: string>>'
            ),
            inside -> inside.key is not null and not exists({{ headers }}, h -> h.key = inside.key)
        ),
        h -> struct(h.key as key, case when h.encoding = 'base64' then try_to_binary(h.value, 'base64') else cast(h.value as binary) end as value)
    )), {{ headers }})
{%- endmacro %}
