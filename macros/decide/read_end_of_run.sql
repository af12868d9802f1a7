{#- The last batch that this run may decide: the one before the first that has an input about a message of an earlier batch. What is decided
    about a message depends on what was decided about it before, and a decide run looks that up in the wheel: with two of its inputs in one run,
    the later one would not see what became of the earlier, and its decision would depend on which batches happened to be decided together.

    An input may be about the message whose coordinates it names, the one that its pointer names, and the one whose copy lies where it
    failed. Which of them it is, is only found later: each counts.

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

            -- several messages may have had the same coordinates: they are told apart by what was there first
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
