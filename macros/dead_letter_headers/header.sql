{#- A header as a struct of name and bytes. Null if the value is null: callers leave such headers out. The value is written as text, numbers as
    decimal text.

    name (not SQL): the header's name. as_text (not SQL): false if the value is binary already. -#}
{% macro header(name, value, as_text=true) -%}
    {%- set bytes = 'cast(cast(' ~ value ~ ' as string) as binary)' if as_text else value -%}
    case when {{ value }} is not null then struct('{{ name }}' as key, {{ bytes }} as value) end
{%- endmacro %}
