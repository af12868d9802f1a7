{#- Whether a topic is one of redrive's own retry or dead letter topics: one that a template makes of a topic that the source speaks for,
    or that a template without {topic} names. A topic that the source lists by name is an original topic, even if a template matches it.

    speaks_for: the source's entries, separated by blanks. templates: `topic_templates` of `rules`. -#}
{% macro is_our_destination(topic, consumer_group, speaks_for, templates) -%}
    (
        not array_contains(split(trim({{ speaks_for }}), ' +'), {{ topic }})
        and exists({{ templates }}, t ->
            {{ topic }} rlike {{ destination_pattern('t', consumer_group) }}
            and t <> '{topic}'
            and (
                not contains(t, '{topic}')
                or {{ is_spoken_for('regexp_extract(' ~ topic ~ ', ' ~ destination_pattern('t', consumer_group) ~ ', 1)', speaks_for) }}
            )
        )
    )
{%- endmacro %}
