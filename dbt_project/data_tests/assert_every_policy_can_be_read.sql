-- assert_every_policy_can_be_read: fails if a retry policy has a clause that can't be read, and shows that clause. The loop doesn't load such rules.
select
    policy,
    definition,
    not_understood
from {{ ref('retry_policies_read') }}
where not_understood is not null
