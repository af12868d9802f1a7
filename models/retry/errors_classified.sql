-- errors_classified: what kind of error it was, and which rule said so. An unknown class is retriable: at worst it is tried in vain.
with

failures as (

    select * from {{ ref('attempts_counted') }}

),

rules as (

    select * from {{ ref('error_rules') }}

),

classified as (

    select
        failures.*,
        case
            when failures.sent_error_kind is not null then failures.sent_error_kind
            when failures.input_kind = 'report' then coalesce(rules.kind, 'retriable')
        end as error_kind,
        case
            when failures.sent_error_kind is not null then concat('publish_error_kinds: ', failures.error_class)
            when rules.error_class is not null then concat('error_rules: ', rules.error_class)
            when failures.input_kind = 'report' then 'default: retriable'
        end as rule
    from failures
    left join rules on failures.input_kind = 'report' and failures.error_class = rules.error_class

)

select * from classified
