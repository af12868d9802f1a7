-- error_rules_gathered: the error rules of the seed, and those of the error sets that it names. An empty condition, which means any, is null.
with

rules_and_sets as (

    select
        *,
        case when startswith(error_class, '@') then substring(error_class, 2) end as error_set
    from {{ ref('error_rules') }}

),

error_sets as (

    select * from {{ ref('error_sets') }}

),

stated as (

    select
        error_class,
        message,
        code,
        header,
        kind,
        source,
        topic,
        consumer_group,
        why,
        error_set
    from rules_and_sets
    where error_set is null

    union all

    -- a row that names a set stands for one rule for each error of the set, with the row's kind and scope; for none if there is no such set
    select
        error_sets.error_class,
        error_sets.message,
        error_sets.code,
        error_sets.header,
        rules_and_sets.kind,
        rules_and_sets.source,
        rules_and_sets.topic,
        rules_and_sets.consumer_group,
        coalesce(rules_and_sets.why, error_sets.why) as why,
        rules_and_sets.error_set
    from rules_and_sets
    inner join error_sets on rules_and_sets.error_set = error_sets.error_set

)

select
    {{ regular_expression("nullif(error_class, '')") }} as error_class,
    {{ regular_expression("nullif(message, '')") }} as message,
    nullif(code, '') as code,
    nullif(header, '') as header,
    {{ error_kind('kind') }} as kind,
    source,
    {{ regular_expression('topic') }} as topic,
    consumer_group,
    why,
    error_set
from stated
