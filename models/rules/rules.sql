-- rules: what the seeds say, put together once when they are loaded, so that a fold reads one row. It can't see half of a seed, either.
{{ config(materialized='table') }}

with

sources as (

    select coalesce(sort_array(collect_list(struct(*))), array()) as sources
    from {{ ref('sources') }}

),

unreadable as (

    select min(concat('the policy ', policy, ' can not be read: ', not_understood, ' is not understood in ', definition)) as policy
    from {{ ref('retry_policies_read') }}
    where not_understood is not null

),

routes as (

    select * from {{ ref('routes_ranked') }}

),

error_rules as (

    select * from {{ ref('error_rules_ranked') }}

),

transparent_wrappers as (

    select coalesce(sort_array(collect_set(error_class)), array()) as transparent_wrappers
    from {{ ref('transparent_wrappers') }}

),

rules_hash as (

    {{ rules_hash() }}

),

rules as (

    select
        {{ stop_unless('unreadable.policy is null', 'rules_hash.rules_hash', 'unreadable.policy') }} as rules_hash,
        sources.sources,
        routes.routes,
        error_rules.class_rules,
        error_rules.other_rules,
        error_rules.header_names,
        transparent_wrappers.transparent_wrappers
    from rules_hash
    cross join unreadable
    cross join sources
    cross join routes
    cross join error_rules
    cross join transparent_wrappers

)

select * from rules
