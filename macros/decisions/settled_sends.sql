{#- A query for the retries and redrives whose group has committed an offset beyond them, where all failures before that offset are decided.

    due_since: SQL, a due time before which none is looked for. -#}
{% macro settled_sends(due_since=none) -%}
    select
        results.delivery_id,
        results.due_at,
        results.sent_at,
        results.consumer_group,
        results.topic,
        results.partition,
        results.offset,
        settled_offsets.settled_at
    from {{ ref('publish_results') }} as results
    inner join {{ ref('settled_offsets') }} as settled_offsets
        on
            results.consumer_group = settled_offsets.consumer_group
            and results.topic = settled_offsets.topic
            and results.partition = settled_offsets.partition
            and results.offset < settled_offsets.offset
            and results.sent_at <= settled_offsets.settled_at
    where
        results.outcome = 'delivered' and results.kind <> 'dead_letter'
        {%- if due_since %}
        and results.due_at >= {{ due_since }}
        {%- endif %}
{%- endmacro %}
