{#- The text if it can be a consumer group in a message id: 1 to 249 characters, no control characters. Else null: the group is unknown. -#}
{% macro known_group(text) -%}
    case when {{ text }} rlike '^[^\\p{Cntrl}]{1,249}\\z' then {{ text }} end
{%- endmacro %}
