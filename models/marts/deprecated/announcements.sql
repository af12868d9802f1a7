-- announcements: decision_feed under its name of table version 1. The next version removes this view.
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
