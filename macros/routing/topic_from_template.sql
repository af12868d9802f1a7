{#- The name of a destination, from its template. {topic} must be the original topic: then a retry of a retry goes to the same topic. -#}
{% macro topic_from_template(template, topic, consumer_group, kind) -%}
    replace(replace(replace({{ template }}, '{topic}', {{ topic }}), '{group}', {{ consumer_group }}), '{kind}', {{ kind }})
{%- endmacro %}
