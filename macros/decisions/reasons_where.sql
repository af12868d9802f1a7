{#- The reasons whose rows in decision_reasons have these values, or another column of those rows, as a SQL list.

    Arguments (not SQL): columns and their values, of which a list has several: `reasons_where(order='waiting', sends='yes')`. -#}
{% macro reasons_where(column='reason') -%}
    {%- set found = [] -%}
    {%- for row in decision_reasons() -%}
        {%- set differ = [] -%}
        {%- for name, wanted in kwargs.items() if row[name] not in ([wanted] if wanted is string else wanted) -%}
            {%- do differ.append(name) -%}
        {%- endfor -%}
        {%- if not differ and row[column] not in found -%}
            {%- do found.append(row[column]) -%}
        {%- endif -%}
    {%- endfor -%}
    ('{{ found | join("', '") }}')
{%- endmacro %}
