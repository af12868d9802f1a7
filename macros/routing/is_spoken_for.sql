{#- Whether a source may report failures of a topic: it is listed in the source's `speaks_for`. -#}
{% macro is_spoken_for(topic, speaks_for) -%}
    exists(split(trim({{ speaks_for }}), ' +'), p -> {{ topic_matches(topic, 'p') }})
{%- endmacro %}
