{#- What a dialect's macro says, by the dialect's name. -#}
{% macro dialect(name) %}
    {{ return(context['dialect_' ~ name]()) }}
{% endmacro %}
