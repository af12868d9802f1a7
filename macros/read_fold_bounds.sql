{#- Reads what fold_bounds returns. -#}
{% macro read_fold_bounds() %}

    {%- set bounds = {'inputs': 0, 'redrives': 0, 'due_from': none, 'due_to': none, 'named': [], 'origin': []} -%}
    {%- set watermark, upto = fold_batches() -%}
    {%- if watermark == upto -%}
        {{ return(bounds) }}
    {%- endif -%}

    {%- set inputs -%}
        with

        reports as (

            select * from {{ ref('stg_reports') }}
            where batch > {{ watermark }} and batch <= {{ upto }}

        ),

        failed_sends as (

            select * from {{ ref('stg_failed_sends') }}
            where batch > {{ watermark }} and batch <= {{ upto }}

        ),

        coordinates as (

            select
                case when {{ pointer_in_time('reports') }} then pointer_due end as pointer_due,
                input_kind,
                explode(array(
                    struct('named' as role, named_topic as topic, named_offset as offset),
                    struct('origin' as role, origin_topic as topic, origin_offset as offset)
                )) as coordinate
            from reports

        )

        select
            coordinate.role,
            coordinate.topic,
            min(coordinate.offset) as offset_from,
            max(coordinate.offset) as offset_to,
            unix_micros(min(pointer_due)) as due_from,
            unix_micros(max(pointer_due)) as due_to,
            count(*) as inputs,
            count_if(input_kind = 'redrive') as redrives
        from coordinates
        group by coordinate.role, coordinate.topic

        union all

        select 'send', null, null, null, unix_micros(min(pointer_due)), unix_micros(max(pointer_due)), count(*), 0
        from failed_sends
    {%- endset -%}
    {%- for row in run_query(inputs) -%}
        {%- if row['topic'] is not none and row['offset_from'] is not none -%}
            {%- do bounds[row['role']].append({'topic': row['topic'], 'from': row['offset_from'] | int, 'to': row['offset_to'] | int}) -%}
        {%- endif -%}
        {%- if row['role'] != 'origin' -%}
            {%- do bounds.update({'inputs': bounds.inputs + row['inputs'] | int, 'redrives': bounds.redrives + row['redrives'] | int}) -%}
        {%- endif -%}
        {%- do widen(bounds, row['due_from'], row['due_to']) -%}
    {%- endfor -%}

    {#- deliveries that are recognised by where their copy lies, though the report names none: when were they due? -#}
    {%- if bounds.named -%}
        {%- set recognised -%}
            select unix_micros(min(due_at)) as due_from, unix_micros(max(due_at)) as due_to
            from {{ ref('publish_results') }}
            where outcome = 'delivered' and {{ coordinates_in_bounds('topic', 'offset', bounds.named) }}
        {%- endset -%}
        {%- for row in run_query(recognised) -%}
            {%- do widen(bounds, row['due_from'], row['due_to']) -%}
        {%- endfor -%}
    {%- endif -%}

    {{ return(bounds) }}

{% endmacro %}
