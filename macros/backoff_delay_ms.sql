{#- How long the n-th failure waits, before jitter, in milliseconds: min(initial x factor^(n-1), max).
    With 1000, 2, 60000: 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, ... A factor of 1 waits the same each time. The power is
    bounded, far above any cap: an infinite one would make of an initial delay of 0 no number at all. -#}
{% macro backoff_delay_ms(failures, initial_ms, factor, max_ms) -%}
    least(
        {{ initial_ms }} * least(power({{ factor }}, greatest({{ failures }} - 1, 0)), 1e18),
        cast({{ max_ms }} as double)
    )
{%- endmacro %}
