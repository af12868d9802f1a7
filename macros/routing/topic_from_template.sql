{#- A destination's name from its template. {topic} is always the original topic, so that a retry of a retry goes to the same place. -#}
{% macro topic_from_template(template, topic, consumer_group, kind) -%}
    replace(replace(replace({{ template }}, '{topic}', {{ topic }}), '{group}', {{ consumer_group }}), '{kind}', {{ kind }})
{%- endmacro %}
