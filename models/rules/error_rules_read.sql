-- error_rules_read: each error rule, parsed: its conditions, its scope, and what it is sorted by.
{{ config(materialized='table') }}

with

rules as (

    select * from {{ ref('error_rules_gathered') }}

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
        -- a rule may give a Kafka error by its number, or by its name in any client: it matches all of them
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
        array_position(array('{{ var('error_kind_precedence') | join("', '") }}'), kind) as kind_order
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
