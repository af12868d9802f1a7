{#- Whether the delivery that a report points to may be the one that it answers: a report can't come before the delivery was due, and after var
    pointer_retention_days the delivery isn't looked up any more. Orders may name deliveries of any age.

    The clock of the loop that sent the delivery may have been ahead: after the wall clock was set back, a loop goes on with its own time, and if it is
    killed, the next begins with the time in the last row of `ticks`, or the wall clock's. Without pointer_ahead_minutes, a report that comes then would
    count as the first failure of a new message.

    report: alias of `stg_reports` in the query. -#}
{% macro pointer_in_time(report) -%}
    (
        {{ report }}.input_kind in {{ order_kinds() }}
        or {{ report }}.pointer_due
        between {{ report }}.recorded_at - interval {{ var('pointer_retention_days') }} days
        and {{ report }}.recorded_at + interval {{ var('pointer_ahead_minutes') }} minutes
    )
{%- endmacro %}
