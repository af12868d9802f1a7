{#- The id of a schema, if a payload looks as if a serializer of a schema registry had written it: a zero, four bytes of a number, and something
    after them. A guess: the number must be small. -#}
{% macro schema_id(value) -%}
    case
        when length({{ value }}) > 5 and hex(substring({{ value }}, 1, 1)) = '00'
            then cast(nullif({{ big_endian('substring(' ~ value ~ ', 2, 4)', 4, 16777215) }}, 0) as int)
    end
{%- endmacro %}
