{#- Whether the delivery that a report points to may be the one that it answers: a report can't come before the delivery was due, and after var
    pointer_retention_days the delivery isn't looked up any more. Orders may name deliveries of any age.

    The clock of the loop that sent it may have been ahead of this one's: if that loop was killed after the wall clock was set back, the next goes on from
    its last row of `ticks`. Without pointer_ahead_minutes, the answer would count as the first failure of a new message.

    report: alias of `stg_reports` in the query. -#}
{% macro pointer_in_time(report) -%}
    (
        {{ report }}.input_kind in {{ order_kinds() }}
        or {{ report }}.pointer_due
        between {{ report }}.recorded_at - interval {{ var('pointer_retention_days') }} days
        and {{ report }}.recorded_at + interval {{ var('pointer_ahead_minutes') }} minutes
    )
{%- endmacro %}
