{#- The beginning of a payload, to be read by people: of JSON and text 200 characters in one line, without control characters; of other payloads 32
    bytes in hexadecimal. -#}
{% macro excerpt(payload_type, body) -%}
    case
        when {{ payload_type }} in ('json', 'text')
            then left(trim(regexp_replace({{ utf8_repaired(body, 1024) }}, '[\\s\\p{C}]+', ' ')), 200)
        when {{ payload_type }} in ('avro', 'binary') then lower(hex(substring({{ body }}, 1, 32)))
    end
{%- endmacro %}
