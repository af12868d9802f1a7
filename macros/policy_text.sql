{#- A policy as a person writes it: exponential(initial=1s, factor=2, max=60s, jitter=0.3, attempts=5). Milliseconds where seconds aren't whole. -#}
{% macro policy_text(policy) -%}
    concat(
        'exponential(initial=', {{ duration_text(policy ~ '.initial_ms') }},
        ', factor=', {{ number_text(policy ~ '.factor') }},
        ', max=', {{ duration_text(policy ~ '.max_ms') }},
        ', jitter=', {{ number_text(policy ~ '.jitter') }},
        case when {{ policy }}.max_attempts is null then '' else concat(', attempts=', {{ policy }}.max_attempts) end,
        ')'
    )
{%- endmacro %}
