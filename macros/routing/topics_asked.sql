{#- A query for `redrive check`, for each topic: the sources that read it; the sources that may report its failures, and for which it isn't one of
    redrive's own topics; and where orphans go if it is a report topic.

    asked: a relation with topics. rules: a relation like `rules`. -#}
{% macro topics_asked(asked, rules) -%}
    select
        topic,
        transform(filter(sources, s -> {{ topic_matches('topic', 's.topic') }}), s -> s.source) as read_by,
        transform(
            filter(
                sources,
                s -> {{ is_spoken_for('topic', 's.speaks_for') }}
                    and not {{ is_our_destination('topic', 'cast(null as string)', 's.speaks_for', 'topic_templates') }}
            ),
            s -> s.source
        ) as spoken_for_by,
        {{ dead_letter_topic_of_reports('topic') }} as dead_letter_topic_of_reports
    from {{ asked }}
    cross join {{ rules }}
{%- endmacro %}
