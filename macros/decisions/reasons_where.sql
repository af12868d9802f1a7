{#- The reasons (or the values of another `column`) of the rows of decision_reasons that have the given values, as a SQL list.

    Arguments (not SQL): a value, or a list of values, for each column: `reasons_where(order='waiting', sends='yes')`. -#}
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
