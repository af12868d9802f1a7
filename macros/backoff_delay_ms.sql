{#- How long the n-th failure waits, before jitter, in milliseconds: min(initial x factor^(n-1), max).
    With 1000, 2, 60000: 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, ... The exponent is clamped: beyond, any factor has met its
    cap. A factor of 1 waits the same each time. -#}
{% macro backoff_delay_ms(failures, initial_ms, factor, max_ms) -%}
    least(
        {{ initial_ms }} * power({{ factor }}, least(greatest({{ failures }} - 1, 0), 1000)),
        cast({{ max_ms }} as double)
    )
{%- endmacro %}
