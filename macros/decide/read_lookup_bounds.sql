{#- Reads what lookup_bounds returns, for the batches after `watermark` up to `upto`; and the first and the last batch that has inputs.

    Spans are by topic and partition, as partitions are filled unevenly. If the offsets of a partition are far apart, it has several spans, cut at the
    widest gaps: else a single report with a made-up offset would make the decide run read all rows of its partition. -#}
{% macro read_lookup_bounds(watermark, upto) %}

    {%- set bounds = {
        'inputs': 0, 'redrives': 0, 'due_from': none, 'due_to': none, 'named': [], 'origin': [], 'first_batch': none, 'last_batch': none
    } -%}
    {%- if watermark == upto -%}
        {{ return(bounds) }}
    {%- endif -%}

    {%- set inputs -%}
        with

        {{ inputs_between(watermark, upto) }},

        coordinates as (

            select
                batch,
                case when {{ pointer_in_time('reports') }} then pointer_due end as pointer_due,
                input_kind,
                inline(array(
                    struct('named' as role, named_topic as topic, named_partition as partition, named_offset as offset),
                    struct('origin' as role, origin_topic as topic, origin_partition as partition, origin_offset as offset)
                ))
            from reports

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

        spans as (

            select
                *,
                count_if(begins_a_span) over (partition by role, topic, partition order by offset) as span
            from ranked

        )

        select
            role,
            topic,
            partition,
            min(offset) as offset_from,
            max(offset) as offset_to,
            unix_micros(min(pointer_due)) as due_from,
            unix_micros(max(pointer_due)) as due_to,
            min(batch) as first_batch,
            max(batch) as last_batch,
            count(*) as inputs,
            count_if(input_kind = 'redrive') as redrives
        from spans
        group by role, topic, partition, span

        union all

        select
            'send', null, null, null, null, unix_micros(min(pointer_due)), unix_micros(max(pointer_due)),
            min(batch), max(batch), count(*), 0
        from failed_sends
    {%- endset -%}
    {%- for row in run_query(inputs) -%}
        {%- if row['topic'] is not none and row['partition'] is not none and row['offset_from'] is not none -%}
            {%- do bounds[row['role']].append({
                'topic': row['topic'], 'partition': row['partition'] | int, 'from': row['offset_from'] | int, 'to': row['offset_to'] | int
            }) -%}
        {%- endif -%}
        {%- if row['role'] != 'origin' -%}
            {%- do bounds.update({'inputs': bounds.inputs + row['inputs'] | int, 'redrives': bounds.redrives + row['redrives'] | int}) -%}
        {%- endif -%}
        {%- if row['first_batch'] is not none -%}
            {%- do bounds.update({
                'first_batch': [row['first_batch'] | int, bounds.first_batch or row['first_batch'] | int] | min,
                'last_batch': [row['last_batch'] | int, bounds.last_batch or 0] | max,
            }) -%}
        {%- endif -%}
        {%- do widen(bounds, row['due_from'], row['due_to']) -%}
    {%- endfor -%}

    {#- a report without a pointer may answer the delivery that lies at the coordinates that it names: its due time widens the bounds -#}
    {%- if bounds.named -%}
        {%- set recognised -%}
            select unix_micros(min(due_at)) as due_from, unix_micros(max(due_at)) as due_to
            from {{ ref('publish_results') }}
            where outcome = 'delivered' and {{ coordinates_in_bounds('topic', 'partition', 'offset', bounds.named) }}
        {%- endset -%}
        {%- for row in run_query(recognised) -%}
            {%- do widen(bounds, row['due_from'], row['due_to']) -%}
        {%- endfor -%}
    {%- endif -%}

    {{ return(bounds) }}

{% endmacro %}
