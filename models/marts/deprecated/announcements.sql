-- announcements: decision_feed under the name of the version before. It goes with the next version.
with

decision_feed as (

    select * from {{ ref('decision_feed') }}

),

announcements as (

    select
        batch,
        message_id,
        will_retry,
        record as announcement
    from decision_feed

)

select * from announcements
