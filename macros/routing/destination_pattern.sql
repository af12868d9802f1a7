{#- A regular expression for all topics that a template can make for a group. It captures {topic}.

    consumer_group: if it is null, or can't be part of a topic's name, any text matches {group}. -#}
{% macro destination_pattern(template, consumer_group) -%}
    concat('^', replace(replace(replace(replace({{ template }}, '.', '[.]'),
        '{topic}', '(.+)'),
        '{group}', case when {{ kafka_topic(consumer_group) }} is null then '.+' else replace({{ consumer_group }}, '.', '[.]') end),
        '{kind}', '[a-z]+'), '\\z')
{%- endmacro %}
