-- decisions: every decision once, and of it what may be shown: no more than its privacy lets see, nothing that an operator has purged.
-- Its description and columns: deliveries.yml.
{{ config(materialized='view') }}

with

decisions as (

    {{ decisions_shown() }}

)

select * from decisions
