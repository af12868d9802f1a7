-- assert_no_delivery_has_two_successors: fails if one failure was counted twice: another answer to an answered delivery must be a duplicate.
with

decisions as (

    select * from {{ ref('decisions') }}

),

validation_errors as (

    select
        prior_delivery,
        count(*) as successors
    from decisions
    where prior_delivery is not null and decision in {{ decisions_where(succeeds='yes') }}
    group by prior_delivery
    having count(*) > 1

)

select * from validation_errors
