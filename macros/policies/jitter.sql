{#- The factor that spreads retries in time, in [1 - fraction, 1 + fraction]: computed from a hash of message and attempt, not from a random number,
    so that a failure that is decided again waits as long as before. -#}
{% macro jitter(message_id, attempt, fraction) -%}
    (1 + {{ fraction }} * (pmod(xxhash64({{ message_id }}, {{ attempt }}), 1000001) / 500000.0 - 1))
{%- endmacro %}
