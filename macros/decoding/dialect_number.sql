{#- A number of a report, as the row's dialect writes numbers: decimal text, or big-endian with the width that Kafka's clients use.

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
