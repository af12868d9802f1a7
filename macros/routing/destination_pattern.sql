{#- The regular expression of all topics that a template makes for a group: {topic} is captured, {group} is the group where it is known.

    consumer_group: the group; any, where it is null or no part of a topic's name. -#}
{% macro destination_pattern(template, consumer_group) -%}
    concat('^', replace(replace(replace(replace({{ template }}, '.', '[.]'),
        '{topic}', '(.+)'),
        '{group}', case when {{ kafka_topic(consumer_group) }} is null then '.+' else replace({{ consumer_group }}, '.', '[.]') end),
        '{kind}', '[a-z]+'), '\\z')
{%- endmacro %}
