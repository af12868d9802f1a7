-- routes_ranked: all routes in one row, the most specific first, each with its policies: the first that matches is the one.
with

routes as (

    select * from {{ ref('routes') }}

),

policies as (

    select * except (not_understood) from {{ ref('retry_policies_read') }}

),

privacy as (

    select * from {{ ref('privacy_read') }}

),

ranked as (

    select
        {{ route_rank('routes.topic', 'routes.consumer_group') }} as rank,
        case when routes.error_kind = '*' then 1 else 0 end as by_kind,
        routes.topic,
        routes.consumer_group,
        routes.error_kind,
        routes.retry_topic,
        routes.dead_letter_topic,
        routes.publish_charge,
        routes.circuit_breaker_per,
        routes.dead_letter_headers as header_profile,
        struct(privacy.*) as privacy,
        struct(processing.*) as processing,
        struct(publishing.*) as publishing
    from routes
    inner join policies as processing on routes.retry_policy = processing.policy
    inner join policies as publishing on routes.publish_policy = publishing.policy
    -- a route whose privacy nobody knows must not be replaced by one that keeps more: `rules` stops there
    left join privacy on routes.privacy = privacy.name

),

gathered as (

    select sort_array(collect_list(struct(*))) as routes
    from ranked

)

select * from gathered
