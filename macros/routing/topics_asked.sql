{#- What topics are to the sources, for `redrive check`: which sources read each, by name, and which may report its failures, as far as it is
    taken for an original topic; and the dead letter topic of its own reports.

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
