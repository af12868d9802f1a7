-- assert_every_policy_can_be_read: with the first clause that can't be, where one can't. While there is one, no seeds are loaded.
select
    policy,
    definition,
    not_understood
from {{ ref('retry_policies_read') }}
where not_understood is not null
