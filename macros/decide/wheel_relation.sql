{#- The table `deliveries` by its name, where a ref would make a cycle. -#}
{% macro wheel_relation() -%}
    {{ return(api.Relation.create(schema=target.schema, identifier='deliveries')) }}
{%- endmacro %}
