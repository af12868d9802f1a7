{#- The clauses that every form takes that isn't `bare`. -#}
{% macro policy_options() -%}
    {{ return(['attempts', 'max_elapsed', 'jitter', 'on_exhausted', 'quota_multiplier', 'backpressure_delay']) }}
{%- endmacro %}
