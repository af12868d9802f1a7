{#- What a payload looks like: null, empty, json, text, avro (or what else a schema registry knows: after its id comes no JSON) or binary.
    `body` is the payload after the schema's id. JSON is an object or an array that can be read.

    schema_id: what `schema_id` says of the payload. body: the payload after the schema's id. -#}
{% macro payload_type(value, schema_id, body) -%}
    case
        when {{ value }} is null then 'null'
        when length({{ value }}) = 0 then 'empty'
        when {{ utf8_text(body) }} rlike '^\\s*[{\\[](?s:.*)[}\\]]\\s*$' and try_parse_json({{ utf8_text(body) }}) is not null then 'json'
        when {{ schema_id }} is not null then 'avro'
        when not {{ utf8_text(body) }} rlike '[\\x00-\\x08\\x0e-\\x1f\\x7f]' then 'text'
        else 'binary'
    end
{%- endmacro %}
