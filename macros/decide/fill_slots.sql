{#- Returns a statement with its slots filled. A slot that has no value keeps its default.

    slots: a dictionary of values by name; see `slot`. -#}
{% macro fill_slots(statement, slots) %}
    {%- set filled = [statement] -%}
    {%- for name, value in slots.items() -%}
        {%- do filled.append(modules.re.sub('/[*]:' ~ name ~ ':[*]/.*?/[*]:[*]/', value, filled.pop())) -%}
    {%- endfor -%}
    {{ return(filled[0]) }}
{% endmacro %}
