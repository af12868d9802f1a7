{#- A consumer group that can be part of an id: not empty, not longer than a topic's name may be, no control characters. Else unknown. -#}
{% macro known_group(text) -%}
    case when {{ text }} rlike '^[^\\p{Cntrl}]{1,249}\\z' then {{ text }} end
{%- endmacro %}
