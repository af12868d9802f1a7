-- deaths: the decisions by which messages die: to be written to a dead letter topic, or adopted from one.
{{ config(materialized='ephemeral', contract={'enforced': false}) }}

with

deaths as (

    {{ decisions_shown(is_dead_letter('deliveries')) }}

)

select * from deaths
