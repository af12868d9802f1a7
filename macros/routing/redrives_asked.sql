{#- A query for `redrive dlq redrive --dry-run`: for each redrive its destination, and the reason for which it would be refused, or null.

    asked: a relation with original_topic, consumer_group and error_kind of dead letters, and `wanted`, the destination that the operator asks for.
    rules: a relation like `rules`. -#}
{% macro redrives_asked(asked, rules) -%}
    select
        *,
        {{ destination_objection('destination', 'has_no_origin', 'source_topics') }} as objection
    from (
        select
            *,
            {{ redrive_destination('wanted', 'has_no_origin', 'route.retry_topic', 'original_topic', 'consumer_group', 'error_kind') }} as destination
        from (
            select
                asked.*,
                source_topics,
                {{ is_read_by_a_source('original_topic', 'source_topics') }} as has_no_origin,
                {{ route_for_kind(routes_of('routes', 'original_topic', 'consumer_group'), 'asked.error_kind') }} as route
            from {{ asked }} as asked
            cross join (
                select routes, transform(sources, s -> s.topic) as source_topics from {{ rules }}
            )
        )
    )
{%- endmacro %}
