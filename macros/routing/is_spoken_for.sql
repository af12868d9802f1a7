{#- Whether a source may report failures of a topic: one of the entries of the source's `speaks_for` matches it. -#}
{% macro is_spoken_for(topic, speaks_for) -%}
    exists(split(trim({{ speaks_for }}), ' +'), p -> {{ topic_matches(topic, 'p') }})
{%- endmacro %}
