-- policies_chosen: the route of each message, and with it where it may go and how long it waits.
with

failures as (

    select * from {{ ref('errors_classified') }}

),

routes as (

    select * from {{ ref('routes_ranked') }}

),

chosen as (

    select
        failures.*,
        try_element_at(filter(
            routes.routes,
            r -> {{ topic_matches('failures.original_topic', 'r.topic') }}
                and (r.consumer_group = '*' or r.consumer_group <=> failures.consumer_group)
        ), 1) as route
    from failures
    cross join routes

)

select
    * except (route),
    route.retry_topic,
    route.dead_letter_topic,
    route.processing.max_attempts,
    -- a failed send is the publisher's trouble and waits by the route's policy for that
    case when input_kind = 'failed_send' then route.publishing else route.processing end as policy
from chosen
