{#- The id of the sequence that a message belongs to: what must be processed in order has the same id. Null if the message has none. An id of more than
    256 characters is cut, and ends with its hash.

    place: where messages carry it: `key`, the name of a header, or a path into a JSON payload, which begins with $; empty: nowhere. is_hidden: whether
    only the hash of the id may be kept, as is_sequence_hidden says. -#}
{% macro sequence_id(place, key, value, headers, is_hidden) -%}
    {%- set header = 'try_element_at(filter(' ~ headers ~ ', h -> h.key = ' ~ place ~ '), -1).value' -%}
    {%- set id -%}
        nullif(case
            when {{ place }} = '' then null
            -- bytes that are no text are written as digits
            when {{ place }} = 'key' then coalesce({{ utf8_text(key) }}, hex({{ key }}))
            when startswith({{ place }}, '$') then get_json_object({{ utf8_text(value) }}, {{ place }})
            else coalesce({{ utf8_text(header) }}, hex({{ header }}))
        end, '')
    {%- endset -%}
    case
        when {{ is_hidden }} then sha2({{ id }}, 256)
        when length({{ id }}) > 256 then concat(left({{ id }}, 243), '~', {{ short_hash(id) }})
        else {{ id }}
    end
{%- endmacro %}
