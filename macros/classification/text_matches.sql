{#- Whether a text fulfils a rule's condition: a regular expression that begins with ^, or a text that it must contain. -#}
{% macro text_matches(text, wanted) -%}
    case when startswith({{ wanted }}, '^') then {{ text }} rlike {{ wanted }} else contains({{ text }}, {{ wanted }}) end
{%- endmacro %}
