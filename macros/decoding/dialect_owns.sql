{#- Whether a header belongs to the dialect of the report or to redrive, and not to the message: such headers are not sent again.

    says: the description of the dialect, as in `rules.dialects`; null: unknown. -#}
{% macro dialect_owns(says, header) -%}
    (
        startswith({{ header }}, 'redrive-')
        or coalesce(exists(
            {{ says }}.owns,
            o -> {{ header }} = o or (endswith(o, '*') and startswith({{ header }}, left(o, length(o) - 1)))
        ), false)
    )
{%- endmacro %}
