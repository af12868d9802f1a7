-- deaths: the decisions by which messages die: to be written to a dead letter topic, adopted from one, or parked.
{{ config(materialized='ephemeral', contract={'enforced': false}) }}

with

deaths as (

    {{ decisions_shown(is_dead_letter('deliveries')) }}

)

select * from deaths
