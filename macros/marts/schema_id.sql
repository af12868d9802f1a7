{#- The id of the schema, if a payload looks like one that a serializer of a schema registry wrote: a zero byte, the id in four bytes, and data. A
    guess: 0 and numbers above 16777215 are not taken for ids. -#}
{% macro schema_id(value) -%}
    case
        when length({{ value }}) > 5 and hex(substring({{ value }}, 1, 1)) = '00'
            then cast(nullif({{ big_endian('substring(' ~ value ~ ', 2, 4)', "'int32'", 16777215) }}, 0) as int)
    end
{%- endmacro %}
