{#- Whether a source reads a topic.

    source_topics: an array of the patterns of all sources. -#}
{% macro is_read_by_a_source(topic, source_topics) -%}
    exists({{ source_topics }}, t -> {{ topic_matches(topic, 't') }})
{%- endmacro %}
