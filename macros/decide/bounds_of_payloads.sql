{#- The range of due_at, in microseconds since 1970, of the first dead letters of those that this run redrives and that were
    written again: only the first one has the payload, and it may be far older. -#}
{% macro bounds_of_payloads() %}
    {%- set query -%}
        {{ only_if('are_redriven') }}
        with

        redriven as (

            select
                delivery_id,
                due_at
            from {{ ref('events') }}
            where {{ slot('are_redriven', 'false') }} and kind = 'redrive' and {{ in_this_run('batch') }}

        ),

        written_again as (

            select payload_due from {{ wheel() }} as deliveries
            left semi join redriven
                on
                    deliveries.delivery_id = redriven.delivery_id
                    and deliveries.due_at = redriven.due_at
            where {{ slot('are_redriven', 'false') }} and payload_due is not null and {{ dues_in_bounds('due_at') }}

        )

        select
            unix_micros(min(payload_due)) as payload_from,
            unix_micros(max(payload_due)) as payload_to,
            min(payload_due) is not null as have_payloads
        from written_again
    {%- endset -%}
    {{ return(query) }}
{% endmacro %}
