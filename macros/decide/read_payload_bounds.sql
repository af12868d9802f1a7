{#- Reads what payload_bounds returns. -#}
{% macro read_payload_bounds() %}

    {%- set bounds = {'due_from': none, 'due_to': none} -%}
    {%- if lookup_bounds().redrives == 0 -%}
        {{ return(bounds) }}
    {%- endif -%}

    {%- set payloads -%}
        select
            unix_micros(min(deliveries.payload_due)) as due_from,
            unix_micros(max(deliveries.payload_due)) as due_to
        from {{ wheel() }} as deliveries
        left semi join {{ ref('events') }} as events
            on
                deliveries.delivery_id = events.delivery_id
                and deliveries.due_at = events.due_at
                and events.kind = 'redrive'
                and {{ in_this_run('events.batch') }}
        where deliveries.payload_due is not null and {{ dues_in_bounds('deliveries.due_at') }}
    {%- endset -%}
    {%- for row in run_query(payloads) if row['due_from'] is not none -%}
        {%- do bounds.update({'due_from': row['due_from'] | int, 'due_to': row['due_to'] | int}) -%}
    {%- endfor -%}

    {{ return(bounds) }}

{% endmacro %}
