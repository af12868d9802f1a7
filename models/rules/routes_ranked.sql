-- routes_ranked: all routes in one row, the most specific first, each with its policies and its privacy: the first that matches counts.
with

routes as (

    {{ ranked_routes(ref('routes'), [
        'retry_topic', 'dead_letter_topic', 'publish_charge', 'circuit_breaker_per', 'sequence', 'followers', 'dead_letter_headers as header_profile', 'privacy as privacy_name',
        'retry_policy', 'publish_policy'
    ]) }}

),

policies as (

    select * except (not_understood) from {{ ref('retry_policies_read') }}

),

privacy as (

    select * from {{ ref('privacy_read') }}

),

ranked as (

    select
        routes.* except (privacy_name, retry_policy, publish_policy),
        struct(privacy.*) as privacy,
        struct(processing.*) as processing,
        struct(publishing.*) as publishing
    from routes
    inner join policies as processing on routes.retry_policy = processing.policy
    inner join policies as publishing on routes.publish_policy = publishing.policy
    -- a left join keeps a route whose privacy doesn't exist, on which `rules` stops: without it, another route would match, which may keep more
    left join privacy on routes.privacy_name = privacy.name

),

gathered as (

    select sort_array(collect_list(struct(*))) as routes
    from ranked

)

select * from gathered
