-- last_decisions: the decision that each message's state follows from: the last one that changed it.
with

last_decisions as (

    {{ last_decisions_of(ref('decisions')) }}

)

select * from last_decisions
