{#- An address made of a template, in which placeholders stand for what each row says, encoded as a part of an address. Null where the row
    has nothing for one of them: half a link leads nowhere.

    placeholders (a dictionary): expressions by placeholder, as `link_placeholders` returns them. -#}
{% macro link(template, placeholders) -%}
    aggregate(
        array(
            {%- for name, value in placeholders.items() %}
            struct('{{ '{' ~ name ~ '}' }}' as placeholder, replace(url_encode(cast({{ value }} as string)), '+', '%20') as said){{ ',' if not loop.last }}
            {%- endfor %}
        ),
        {{ template }},
        (address, p) -> case when contains(address, p.placeholder) then replace(address, p.placeholder, p.said) else address end
    )
{%- endmacro %}
