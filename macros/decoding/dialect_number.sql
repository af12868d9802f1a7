{#- A number of a report, decoded as the dialect of the row writes numbers: decimal text, or big-endian bytes, 4 for a partition, else 8.

    limit (not SQL): `partition`, `offset` or `moment_ms`. Reads the column `dialect`. -#}
{% macro dialect_number(bytes, limit) -%}
    case dialect
        {%- for name in var('dialects') %}
        when '{{ name }}' then
            {% if dialect(name).numbers == 'decimal' -%}
            {{ whole_number(utf8_text(bytes), limits(limit)) }}
            {%- else -%}
            {{ big_endian(bytes, {'partition': 4}.get(limit, 8), limits(limit)) }}
            {%- endif %}
        {%- endfor %}
    end
{%- endmacro %}
