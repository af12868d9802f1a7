-- decisions: every decision once, with what its privacy allows to be shown, and without what an operator has purged.
-- deliveries.yml describes it and its columns.
{{ config(materialized='view') }}

with

decisions as (

    {{ decisions_shown() }}

)

select * from decisions
