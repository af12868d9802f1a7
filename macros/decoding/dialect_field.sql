{#- The bytes of a field of a report, from the header that the row's dialect has for it; null if the report has no such header.

    field (not SQL): a field of a dialect's dictionary, `named_topic` for instance. Reads the column `dialect`. -#}
{% macro dialect_field(field, headers) -%}
    case dialect
        {%- for name in var('dialects') %}
        {%- set says = dialect(name) %}
        {%- set candidates = says.fields.get(field, []) %}
        {%- if candidates %}
        when '{{ name }}' then coalesce(
            {%- for header in candidates -%}
            {{ header_bytes(headers, header, 'first' if field in says.read_first else 'last') }}{{ ', ' if not loop.last }}
            {%- endfor -%}
        )
        {%- endif %}
        {%- endfor %}
    end
{%- endmacro %}
