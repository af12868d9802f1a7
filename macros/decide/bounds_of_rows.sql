{#- What the rows of outboxes in this run have to be compared with: the earlier rows of the wheel that may be about the same ones (`rows_before`, a condition),
    and the first due time of these (`rows_from`, microseconds since 1970). A row is decided about after it was created, so nothing older is looked up,
    but by a day, as clocks differ; ids narrow it further, where they are safe in a statement. -#}
{% macro bounds_of_rows() %}
    {%- set query -%}
        {{ only_if('are_rows') }}
        with

        taken as (

            select
                source,
                order_detail as row_id,
                unix_micros(least(happened_at, recorded_at) - interval 1 day) as earliest,
                happened_at is null as is_of_any_age,
                order_detail rlike '^[A-Za-z0-9_:.-]{1,100}\\z' as is_plain
            from {{ inputs_of_this_run() }}
            where {{ slot('are_rows', 'false') }} and input_kind = 'row'

        ),

        spans as (

            select
                source,
                case when bool_or(is_of_any_age) then 0 else min(earliest) end as earliest,
                case when bool_and(is_plain) then concat(" and outbox_row between '", min(row_id), "' and '", max(row_id), "'") else '' end as between_ids
            from taken
            group by source

        )

        select
            min(earliest) as rows_from,
            case
                when count(*) > 0
                    then concat('(', array_join(collect_list(concat(
                        '(due_at >= timestamp_micros(', earliest, ')', between_ids, ')'
                    )), ' or '), ')')
            end as rows_before
        from spans
    {%- endset -%}
    {{ return(query) }}
{% endmacro %}
