-- error_rules_read: each rule, taken apart: what it matches, where it holds, and how specific it is.
{{ config(materialized='table') }}

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

said as (

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

    -- a row that names a set stands for all its errors, in its own scope and of its own kind; a set that nobody knows has none
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

),

rules as (

    select
        -- what is empty in the file means any, and is null here
        {{ regular_expression("nullif(error_class, '')") }} as error_class,
        {{ regular_expression("nullif(message, '')") }} as message,
        nullif(code, '') as code,
        nullif(header, '') as header,
        {{ error_kind('kind') }} as kind,
        source,
        topic,
        consumer_group,
        why,
        error_set
    from said

),

kafka_errors as (

    select
        cast(code as string) as code,
        name,
        filter(split(also_called, ' +'), other -> other <> '') as also_called
    from {{ ref('publish_error_kinds') }}

),

read as (

    select
        rules.*,
        concat_ws(', ',
            rules.error_class,
            concat('message ', rules.message),
            concat('code ', rules.code),
            concat('header ', rules.header)
        ) as conditions,
        {{ class_match('rules.error_class') }} as matches,
        {{ class_named('rules.error_class') }} as class_name,
        -- Kafka's errors have a number, and a name in each client
        case
            when rules.code is not null
                then array_distinct(array_compact(concat(
                    array(upper(rules.code), kafka_errors.code, kafka_errors.name), coalesce(kafka_errors.also_called, array())
                )))
        end as codes,
        substring_index(rules.header, '=', 1) as header_name,
        case
            when contains(rules.header, '=')
                then {{ regular_expression("substring(rules.header, length(substring_index(rules.header, '=', 1)) + 2)") }}
        end as header_value
    from rules
    left join kafka_errors
        on upper(rules.code) in (kafka_errors.code, kafka_errors.name) or array_contains(kafka_errors.also_called, upper(rules.code))

),

ranked as (

    select
        *,
        conditions = '' as is_default,
        message is not null or code is not null or header is not null as looks_beyond_the_class,
        {{ rule_scope('source', 'topic', 'consumer_group') }} as scope,
        {{ scope_text('topic', 'consumer_group', 'source') }} as scope_text,
        array_position(array('{{ error_kinds().keys() | join("', '") }}'), kind) as kind_order
    from read

)

select
    concat(
        case when error_set is null then 'error_rules: ' else concat('error_sets: ', error_set, ': ') end,
        concat_ws(' for ', coalesce(nullif(conditions, ''), 'all others'), scope_text)
    ) as rule,
    scope,
    is_default,
    looks_beyond_the_class,
    matches,
    error_class,
    class_name,
    message,
    codes,
    header_name,
    header_value,
    kind,
    kind_order,
    error_set,
    source,
    topic,
    consumer_group,
    why
from ranked
