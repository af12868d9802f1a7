-- What has died, and why? One row per dead letter topic, reason, error class and number of attempts. Messages that were redriven, have recovered or
-- were discarded since are counted, too.
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
