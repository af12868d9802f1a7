-- rules: the seeds that decisions depend on, in one row, made when they are loaded. A decide run reads only this row, never half-loaded seeds.
{{ config(materialized='table') }}

with

sources as (

    select coalesce(sort_array(collect_list(struct(*))), array()) as sources
    from (
        select
            * except (speaks_for),
            array_join(transform(split(trim(speaks_for), ' +'), p -> {{ regular_expression('p') }}), ' ') as speaks_for
        from {{ ref('sources') }}
    ) as tried

),

unreadable as (

    select min(problem) as problem
    from (
        select
            case
                when not_understood = definition
                    then concat('the policy ', policy, ' cannot be read: its form is unknown, or clauses are missing: ', definition)
                else concat('the policy ', policy, ' cannot be read: ', not_understood, ' is not understood in ', definition)
            end as problem
        from {{ ref('retry_policies_read') }}
        where not_understood is not null
        union all
        select concat(
            'the policy ', policy, ' has ', processing_only, ', and is the publish_policy of a route: failed sends are bounded by attempts alone'
        ) as problem
        from {{ ref('retry_policies_read') }}
        where processing_only is not null and policy in (select publish_policy from {{ ref('routes') }})
        union all
        select concat('the privacy ', privacy, ' of a route is not in the seed privacy') as problem
        from {{ ref('routes') }}
        where privacy not in (select name from {{ ref('privacy_read') }})
        union all
        select concat('the dialect ', dialect, ' of the source ', source, ' is not known') as problem
        from {{ ref('sources') }}
        where dialect <> '{{ var('any_dialect') }}' and dialect not in (select dialect from {{ ref('dialects_read') }})
    ) as problems

),

routes as (

    select * from {{ ref('routes_ranked') }}

),

dead_letter_topics as (

    select * from {{ ref('dead_letter_topics_ranked') }}

),

error_rules as (

    select * from {{ ref('error_rules_ranked') }}

),

transparent_wrappers as (

    select coalesce(sort_array(collect_set(error_class)), array()) as transparent_wrappers
    from {{ ref('transparent_wrappers') }}

),

dialects as (

    select map_from_entries(collect_list(struct(dialect, struct(owns, recognised_by, attempts_ahead, refers_when_empty, copies_timestamp, fields)))) as dialects
    from {{ ref('dialects_read') }}

),

rules_hash as (

    {{ rules_hash() }}

),

rules as (

    select
        {{ stop_unless('unreadable.problem is null', 'rules_hash.rules_hash', 'unreadable.problem') }} as rules_hash,
        sources.sources,
        dialects.dialects,
        routes.routes,
        dead_letter_topics.dead_letter_topics,
        {{ topic_templates('routes.routes', 'dead_letter_topics.dead_letter_topics') }} as topic_templates,
        error_rules.class_rules,
        error_rules.other_rules,
        error_rules.header_names,
        transparent_wrappers.transparent_wrappers
    from rules_hash
    cross join unreadable
    cross join sources
    cross join dialects
    cross join routes
    cross join dead_letter_topics
    cross join error_rules
    cross join transparent_wrappers

)

select * from rules
