-- error_rules_read: each rule, taken apart: what it matches, where it holds, and how specific it is.
{{ config(materialized='table') }}

with

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
        why
    from {{ ref('error_rules') }}

),

kafka_errors as (

    select
        cast(code as string) as code,
        name
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
        -- Kafka's errors have a number and a name
        case
            when rules.code is not null then array_distinct(array_compact(array(upper(rules.code), kafka_errors.code, kafka_errors.name)))
        end as codes,
        substring_index(rules.header, '=', 1) as header_name,
        case
            when contains(rules.header, '=')
                then {{ regular_expression("substring(rules.header, length(substring_index(rules.header, '=', 1)) + 2)") }}
        end as header_value
    from rules
    left join kafka_errors on upper(rules.code) in (kafka_errors.code, kafka_errors.name)

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
    concat('error_rules: ', concat_ws(' for ', coalesce(nullif(conditions, ''), 'all others'), scope_text)) as rule,
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
    source,
    topic,
    consumer_group,
    why
from ranked
