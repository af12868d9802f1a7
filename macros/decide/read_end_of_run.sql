{#- Returns the last batch that this run may decide: the one before the first batch that has an input about a message of an earlier batch of the run.
    A decision depends on the message's earlier decisions, which a decide run looks up in the wheel. With inputs of two batches about a message in
    one run, the later one would not see the decision about the earlier one, and would depend on which batches are decided together.

    Which message an input is about is found later. It may be the one whose coordinates the input names, the one that its pointer names, or the
    one whose delivery lies at the named coordinates: all of them count here.

    named: `named` of lookup_bounds. -#}
{% macro read_end_of_run(watermark, upto, named) %}

    {%- set first_repeated -%}
        with

        {{ inputs_between(watermark, upto) }},

        delivered as (

            select * from {{ ref('publish_results') }}
            where outcome = 'delivered' and {{ coordinates_in_bounds('topic', 'partition', 'offset', named) }}

        ),

        concerned as (

            select
                reports.batch,
                explode(array_compact(array(
                    {{ message_id('reports.consumer_group', 'reports.origin_topic', 'reports.origin_partition', 'reports.origin_offset') }},
                    {{ message_of('reports.pointer_delivery') }},
                    delivered.message_id
                ))) as message_id
            from reports
            left join delivered
                on
                    reports.named_topic = delivered.topic
                    and reports.named_partition = delivered.partition
                    and reports.named_offset = delivered.offset

            union all

            select
                batch,
                {{ message_of('pointer_delivery') }} as message_id
            from failed_sends

        ),

        messages as (

            -- without the hash of the content: which of several messages with the same coordinates has none is known later
            select array_sort(collect_set(batch)) as batches
            from concerned
            where message_id <> ''
            group by regexp_replace(message_id, '~[0-9a-f]{8}\\z', '')

        )

        select min(try_element_at(batches, 2)) as batch from messages
    {%- endset -%}
    {%- set batch = run_query(first_repeated)[0]['batch'] -%}
    {{ return(upto if batch is none else (batch | int) - 1) }}

{% endmacro %}
