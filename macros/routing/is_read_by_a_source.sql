{#- Whether a source reads a topic.

    source_topics: an array of the topics of all sources: names, or regular expressions that begin with ^. -#}
{% macro is_read_by_a_source(topic, source_topics) -%}
    exists({{ source_topics }}, t -> {{ topic_matches(topic, 't') }})
{%- endmacro %}
