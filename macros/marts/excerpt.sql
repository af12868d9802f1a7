{#- The beginning of a payload for people: of text 200 characters in one line, without control characters; of other bytes 32, in hexadecimal. -#}
{% macro excerpt(payload_type, body) -%}
    case
        when {{ payload_type }} in ('json', 'text')
            then left(trim(regexp_replace({{ utf8_repaired(body, 1024) }}, '[\\s\\p{C}]+', ' ')), 200)
        when {{ payload_type }} in ('avro', 'binary') then lower(hex(substring({{ body }}, 1, 32)))
    end
{%- endmacro %}
