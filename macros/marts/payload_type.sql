{#- What a payload looks like: `null`, `empty`, `json` (an object or an array that can be parsed), `avro` (it begins with a schema's id, and what
    follows isn't JSON: it may be another format of the schema registry), `text` or `binary`.

    schema_id: the id that the macro `schema_id` found, or null. body: the payload after the schema's id, if there is one. -#}
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
