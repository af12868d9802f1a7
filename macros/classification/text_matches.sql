{#- Whether a text is meant by what a rule says of it: a regular expression that begins with ^, or a fragment. -#}
{% macro text_matches(text, wanted) -%}
    case when startswith({{ wanted }}, '^') then {{ text }} rlike {{ wanted }} else contains({{ text }}, {{ wanted }}) end
{%- endmacro %}
