{#- How long the n-th failure waits by a policy, before quota and jitter, in milliseconds: min(initial x factor^(n-1) + increment x (n-1), max), or
    the delay of the step that n is in. exponential has an increment of 0, linear a factor of 1. The power is limited to 1e18, far above any max: an
    infinite one times an initial delay of 0 would be NaN.

    failures: n, from 1 on. policy: a row, or a struct, of `retry_policies_read`. -#}
{% macro backoff_delay_ms(failures, policy) -%}
    case
        when {{ policy }}.steps is not null then cast(coalesce(
            try_element_at(filter({{ policy }}.steps, s -> {{ failures }} <= s.upto), 1).delay_ms,
            try_element_at({{ policy }}.steps, -1).delay_ms
        ) as double)
        else least(
            {{ policy }}.initial_ms * least(power({{ policy }}.factor, greatest({{ failures }} - 1, 0)), 1e18)
            + cast({{ policy }}.increment_ms as double) * greatest({{ failures }} - 1, 0),
            cast({{ policy }}.max_ms as double)
        )
    end
{%- endmacro %}
