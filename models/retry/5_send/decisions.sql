-- decisions: every decision once, with what its privacy allows to be shown, and without what an operator has purged.
-- Its description and columns: deliveries.yml.
{{ config(materialized='view') }}

with

decisions as (

    {{ decisions_shown() }}

)

select * from decisions
