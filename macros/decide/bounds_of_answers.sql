{#- Two results that depend on the deliveries that lie at the coordinates that the inputs name.

    The bounds of due times: a report without a pointer may answer such a delivery, so the due time of that delivery widens the range, and the
    conditions on hours (`due_at_hours`, `prior_due_hours`).

    `upto`, the last batch that this run may decide: the one before the first batch that has an input about a message of an earlier batch of the run.
    A decision depends on the message's earlier decisions, which a decide run reads from the wheel. With inputs of two batches about one message in a
    run, the later decision would miss the earlier one, and would depend on which batches are decided together.

    Which message an input is about is found later. It may be the one whose coordinates the input names, the one that its pointer names, the one
    whose delivery lies at the named coordinates, or the row of an outbox: all of them count here. -#}
{% macro bounds_of_answers() %}
    {%- set query -%}
        with

        delivered as (

            select * from {{ ref('publish_results') }}
            where outcome = 'delivered' and {{ slot('named', 'false') }}

        ),

        concerned as (

            select
                inputs.batch,
                explode(array_compact(array(
                    {{ message_id('inputs.consumer_group', 'inputs.origin_topic', 'inputs.origin_partition', 'inputs.origin_offset') }},
                    {{ message_of('inputs.pointer_delivery') }},
                    case when inputs.input_kind = 'row' then concat('outbox:', inputs.source, '/', inputs.order_detail) end,
                    delivered.message_id
                ))) as message_id
            from {{ inputs_of_this_run() }} as inputs
            left join delivered
                on
                    inputs.named_topic = delivered.topic
                    and inputs.named_partition = delivered.partition
                    and inputs.named_offset = delivered.offset
            where {{ slot('are_of_several_batches', 'false') }}

        ),

        messages as (

            -- the hash of the content is cut off: it is not known yet which of several messages with these coordinates the input is about
            select array_sort(collect_set(batch)) as batches
            from concerned
            where message_id <> ''
            group by regexp_replace(message_id, '~[0-9a-f]{8}\\z', '')

        ),

        found as (

            select
                (select min(try_element_at(batches, 2)) - 1 from messages) as upto,
                unix_micros(min(due_at)) as due_from,
                unix_micros(max(due_at)) as due_to,
                collect_set(unix_seconds(date_trunc('hour', due_at))) as due_hours
            from delivered

        ),

        widened as (

            select
                upto,
                least(due_from, cast({{ slot('due_from', 'null') }} as bigint)) as due_from,
                greatest(due_to, cast({{ slot('due_to', 'null') }} as bigint)) as due_to,
                array_union(due_hours, {{ slot('due_hours', 'cast(null as array<bigint>)') }}) as due_hours
            from found

        )

        select
            upto,
            due_from,
            due_to,
            due_from is not null as are_due,
            {{ condition_of_hours('due_hours', 'due_at') }} as due_at_hours,
            {{ condition_of_hours('due_hours', 'prior_due') }} as prior_due_hours
        from widened
    {%- endset -%}
    {{ return(query) }}
{% endmacro %}
