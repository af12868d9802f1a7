{#- An address made of a template by replacing each placeholder by the row's URL-encoded value. Null if the value of a placeholder in the template is
    null: an incomplete link is of no use.

    placeholders (a dictionary): expressions by placeholder, as `link_placeholders` returns them. -#}
{% macro link(template, placeholders) -%}
    aggregate(
        array(
            {%- for name, value in placeholders.items() %}
            struct('{{ '{' ~ name ~ '}' }}' as placeholder, replace(url_encode(cast({{ value }} as string)), '+', '%20') as encoded){{ ',' if not loop.last }}
            {%- endfor %}
        ),
        {{ template }},
        (address, p) -> case when contains(address, p.placeholder) then replace(address, p.placeholder, p.encoded) else address end
    )
{%- endmacro %}
