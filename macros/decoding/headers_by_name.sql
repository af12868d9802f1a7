{#- Headers as a map from name to text. Of several with one name the last counts; bytes that aren't UTF-8 are replaced. -#}
{% macro headers_by_name(headers) -%}
    map_from_arrays(
        array_distinct(transform({{ headers }}, h -> h.key)),
        transform(
            array_distinct(transform({{ headers }}, h -> h.key)),
            n -> make_valid_utf8(cast(try_element_at(filter({{ headers }}, h -> h.key = n), -1).value as string))
        )
    )
{%- endmacro %}
