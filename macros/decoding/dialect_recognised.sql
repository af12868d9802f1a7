{#- The dialect that the headers of a record show; null if they show none, or more than one. Only names of headers count: the same value can be written in
    several ways.

    dialects: as in `rules.dialects`. -#}
{% macro dialect_recognised(dialects, headers) -%}
    try_element_at(
        filter(
            array(transform(
                filter(
                    map_entries({{ dialects }}),
                    d -> exists(d.value.recognised_by, names -> forall(names, n -> exists({{ headers }}, h -> h.key = n)))
                ),
                d -> d.key
            )),
            names -> size(names) = 1
        ),
        1
    )[0]
{%- endmacro %}
