{#- A field of a report, from the header that its dialect has for it: a struct of `bytes` and `encoding`; null if the report has no such header, or an
    empty one.

    field (not SQL): one of var dialect_fields. says: the description of the dialect, as in `rules.dialects`. headers: those of the report. -#}
{% macro dialect_field(field, says='says', headers='headers') -%}
    try_element_at(filter(transform({{ says }}.fields.{{ field }}, c -> struct(
        case
            when c.path is null then try_element_at(filter({{ headers }}, h -> h.key = c.header), if(c.is_first, 1, -1)).value
            else cast(get_json_object(
                {{ utf8_text('try_element_at(filter(' ~ headers ~ ', h -> h.key = c.header), if(c.is_first, 1, -1)).value') }}, c.path
            ) as binary)
        end as bytes,
        c.encoding as encoding
    )), v -> length(v.bytes) > 0), 1)
{%- endmacro %}
