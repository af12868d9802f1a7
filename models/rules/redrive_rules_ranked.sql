-- redrive_rules_ranked: the redrive rules in one row, the most specific first: the first that matches counts.
with

rules as (

    select
        {{ regular_expression("nullif(error_class, '')") }} as error_class,
        {{ regular_expression('topic') }} as topic,
        consumer_group,
        max_life_cycles,
        cast({{ duration_ms('delay') }} as bigint) as delay_ms,
        concat_ws(' for ', coalesce(nullif(error_class, ''), 'any error'), {{ scope_text('topic', 'consumer_group') }}) as rule,
        why
    from {{ ref('redrive_rules') }}

),

ancestors as (

    select * from {{ ref('error_class_ancestors') }}

),

ranked as (

    {{ ranked_by_class('rules', 'ancestors', ['max_life_cycles', 'delay_ms', 'rule', 'why']) }}

),

gathered as (

    select coalesce(sort_array(collect_list(struct(*))), array()) as redrive_rules
    from ranked

)

select * from gathered
