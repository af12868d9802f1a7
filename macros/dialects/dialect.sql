{#- What a dialect's macro says, by the dialect's name.

    name (not SQL): the name, as in `sources`. -#}
{% macro dialect(name) %}
    {{ return(context['dialect_' ~ name]()) }}
{% endmacro %}
