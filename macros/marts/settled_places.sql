{#- A query for the progress of consumer groups, one row for each time that a group got further in a partition: the offset before which every record
    was tried, and when that was recorded. -#}
{% macro settled_places() -%}
    select
        batch,
        recorded_at,
        settled.consumer_group,
        settled.topic,
        settled.partition,
        settled.offset
    from (
        select
            batch,
            recorded_at,
            explode(settled) as settled
        from {{ ref('ticks') }}
        where settled is not null
    ) as steps
{%- endmacro %}
