-- policies_chosen: the route of each input: its destinations, and the policy by which its message waits.
with

failures as (

    select * from {{ ref('attempts_counted') }}

),

chosen as (

    select
        *,
        {{ route_for_kind('routes', 'failures.error_kind') }} as route,
        -- that of followers, whatever the error: a failure and what follows it must be of one sequence
        {{ route_for_kind('routes', "'follows'") }}.sequence as sequence_by,
        -- that of the errors that open circuit breakers: a retry must be held by the breaker which such an error opens
        {{ route_for_kind('routes', "'blocking'") }}.circuit_breaker_per as circuit_breaker_per
    from failures

)

select
    * except (route, routes, dead_letter_topic_of_class),
    route.retry_topic,
    coalesce(dead_letter_topic_of_class, route.dead_letter_topic) as dead_letter_topic,
    route.header_profile,
    route.privacy,
    route.publish_charge,
    {{ is_sequence_hidden('sequence_by', 'routes') }} as is_sequence_hidden,
    -- not `least`, which ignores a null: a policy without a bound would get one
    cast(case when route.processing.max_attempts > 2147483647 then 2147483647 else route.processing.max_attempts end as int) as max_attempts,
    -- a failed send waits by the route's publish_policy, a failure of what is tried by its retry_policy
    case when input_kind = 'failed_send' and not is_failed_publication then route.publishing else route.processing end as policy
from chosen
