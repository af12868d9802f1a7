-- What is dead, and why? One row per reason and error class.
select
    topic,
    reason,
    error_class,
    attempts,
    count(*) as messages,
    any_value(error_message) as for_example
from {{ ref('dead_letters') }}
group by topic, reason, error_class, attempts
order by messages desc
