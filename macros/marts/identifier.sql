{#- An id that a message carries, from the first of `places` that has one; null if none has. It is cut at 256 bytes of a header, or 256 characters of
    a payload.

    places: names of headers, and paths into a JSON payload, which begin with $, separated by blanks. -#}
{% macro identifier(places, headers, value) -%}
    try_element_at(
        filter(
            transform(
                split({{ places }}, ' '),
                place -> trim(regexp_replace(
                    case
                        when startswith(place, '$') then left(get_json_object({{ utf8_text(value) }}, place), 256)
                        else {{ utf8_repaired('try_element_at(filter(' ~ headers ~ ', h -> h.key = place), -1).value', 256) }}
                    end,
                    '[\\s\\p{C}]+',
                    ' '
                ))
            ),
            found -> found <> ''
        ),
        1
    )
{%- endmacro %}
