{#- The dictionary that describes a dialect: what its macro dialect_<name> returns (see dialect_redrive).

    name (not SQL): the name, as in `sources`. -#}
{% macro dialect(name) %}
    {{ return(context['dialect_' ~ name | replace('-', '_')]()) }}
{% endmacro %}
