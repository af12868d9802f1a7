{#- A header as Kafka has it: a name and bytes. Null, to be left out, where the value is null. Numbers are written as decimal text, unless they
    are bytes already (`as_text=false`).

    name (not SQL): the header's name. as_text (not SQL): false where the value is binary already. -#}
{% macro header(name, value, as_text=true) -%}
    {%- set bytes = 'cast(cast(' ~ value ~ ' as string) as binary)' if as_text else value -%}
    case when {{ value }} is not null then struct('{{ name }}' as key, {{ bytes }} as value) end
{%- endmacro %}
