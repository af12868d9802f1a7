{#- A header as Kafka has it: a name and bytes. Null, to be left out, where the text is null. Numbers are written as decimal text. -#}
{% macro header(name, text) -%}
    case when {{ text }} is not null then struct('{{ name }}' as key, cast(cast({{ text }} as string) as binary) as value) end
{%- endmacro %}
