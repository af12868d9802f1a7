{#- The factor that spreads retries in time, in [1 - j, 1 + j]: a hash of message and attempt, never a random number, so that the same
    failure decided twice waits equally long. -#}
{% macro jitter(message_id, attempt, fraction) -%}
    (1 + {{ fraction }} * (pmod(xxhash64({{ message_id }}, {{ attempt }}), 1000001) / 500000.0 - 1))
{%- endmacro %}
