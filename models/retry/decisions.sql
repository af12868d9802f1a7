-- decisions: every decision once, and of it what may be shown: no more than its privacy lets see, nothing that an operator has purged.
{{ config(materialized='view') }}

{%- set purged = ['error_message', 'error_stack', 'matched', 'key', 'value', 'headers'] %}

with

decisions_once as (

    select * from {{ ref('decisions_once') }}

),

purges as (

    select * from {{ ref('purges') }}

),

decisions as (

    select
        decisions_once.* except ({{ purged | join(', ') }}),
        {%- for column in purged %}
        case when coalesce(decisions_once.life > purges.life, true) then decisions_once.{{ column }} end as {{ column }}{{ ',' if not loop.last }}
        {%- endfor %}
    from decisions_once
    left join purges on decisions_once.message_id = purges.message_id

)

select * from decisions
