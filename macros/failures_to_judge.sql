{#- What the error rules are asked about: the failures of this fold; or those of a view, where somebody only wants to know what the rules say. -#}
{% macro failures_to_judge() -%}
    {%- set failures = ref('messages_identified') -%}
    {{ return(api.Relation.create(identifier=var('judge')) if var('judge') else failures) }}
{%- endmacro %}
