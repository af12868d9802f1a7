-- decisions: each row of `deliveries` once. A fold that is repeated after a crash, or runs beside another, adds copies.
{{ config(materialized='view') }}

with

deliveries as (

    select * from {{ ref('deliveries') }}

),

first_folds as (

    {{ first_folds('deliveries') }}

),

decisions as (

    select deliveries.*
    from deliveries
    left semi join first_folds
        on
            deliveries.batch = first_folds.batch
            and deliveries.due_hour = first_folds.due_hour
            and deliveries.fold = first_folds.fold

)

select * from decisions
