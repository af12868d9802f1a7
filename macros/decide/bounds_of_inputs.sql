{#- What the inputs of this run name: how many there are (`inputs`), whether some ask for a redrive, whether some or all are rows of outboxes, whether they are of several batches, the range
    of the due times that they point to (`due_from`, `due_to`, microseconds since 1970) and the hours of these (`due_hours`, the text of an array, seconds
    since 1970), and conditions on offsets by topic and partition: of the records that failed (`named`), and of the original records (`origin`).

    Spans of offsets are by topic and partition, as partitions are filled unevenly. If the offsets of a partition are far apart, it has several spans,
    cut at the widest gaps: else a single report with a made-up offset would make the decide run read all rows of its partition. -#}
{% macro bounds_of_inputs() %}
    {%- set query -%}
        with

        coordinates as (

            select
                batch,
                pointer_due,
                input_kind,
                inline(array(
                    struct('named' as role, named_topic as topic, named_partition as partition, named_offset as offset),
                    struct('origin' as role, origin_topic as topic, origin_partition as partition, origin_offset as offset)
                ))
            from {{ inputs_of_this_run() }}

        ),

        spaced as (

            select
                *,
                offset - lag(offset) over (partition by role, topic, partition order by offset) as gap
            from coordinates

        ),

        ranked as (

            select
                *,
                gap > {{ var('max_bounded_gap') }} and row_number() over (order by gap desc) <= {{ var('max_bounded_gaps') }} as begins_a_span
            from spaced

        ),

        numbered as (

            select
                *,
                count_if(begins_a_span) over (partition by role, topic, partition order by offset) as span
            from ranked

        ),

        spans as (

            select
                role,
                struct(topic, partition, min(offset) as first, max(offset) as last) as span,
                topic is not null and partition is not null and min(offset) is not null as is_complete,
                min(pointer_due) as due_from,
                max(pointer_due) as due_to,
                collect_set(unix_seconds(date_trunc('hour', pointer_due))) as due_hours,
                min(batch) as first_batch,
                max(batch) as last_batch,
                count(*) as inputs,
                count_if(input_kind = 'redrive') as redrives,
                count_if(input_kind = 'row') as outbox_rows
            from numbered
            group by role, topic, partition, numbered.span

        ),

        found as (

            select
                coalesce(sum(inputs) filter (where role = 'named'), 0) as inputs,
                coalesce(sum(redrives) filter (where role = 'named'), 0) as redrives,
                coalesce(sum(outbox_rows) filter (where role = 'named'), 0) as outbox_rows,
                min(first_batch) < max(last_batch) as are_of_several_batches,
                unix_micros(min(due_from)) as due_from,
                unix_micros(max(due_to)) as due_to,
                array_sort(array_distinct(flatten(collect_list(due_hours)))) as due_hours,
                collect_list(span) filter (where role = 'named' and is_complete) as named,
                collect_list(span) filter (where role = 'origin' and is_complete) as origin
            from spans

        )

        select
            inputs,
            redrives > 0 as are_redriven,
            outbox_rows > 0 as are_rows,
            outbox_rows > 0 and outbox_rows = inputs as are_only_rows,
            coalesce(are_of_several_batches, false) as are_of_several_batches,
            due_from,
            due_to,
            due_from is not null as are_due,
            case
                when size(due_hours) <= {{ var('max_bounded_spans') }} then concat('cast(array(', array_join(due_hours, ', '), ') as array<bigint>)')
                else 'cast(null as array<bigint>)'
            end as due_hours,
            {{ condition_of_spans('named') }} as named,
            {{ condition_of_spans('origin', 'original_') }} as origin
        from found
    {%- endset -%}
    {{ return(query) }}
{% endmacro %}
