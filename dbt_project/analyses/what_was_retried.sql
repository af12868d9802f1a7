-- What was decided about failed attempts, and how late were the sends? One row per error class, number of the failed attempt, and decision.
select
    error_class,
    attempt as failed_attempt,
    decision,
    count(*) as messages,
    round(avg(delay_ms)) as mean_delay_ms,
    percentile_approx(lateness_ms, 0.5) as late_p50_ms
from {{ ref('attempts') }}
group by error_class, attempt, decision
order by error_class, attempt, decision
