{#- The options that all forms take that retry at all. -#}
{% macro policy_options() -%}
    {{ return(['attempts', 'max_elapsed', 'jitter', 'on_exhausted', 'quota_multiplier', 'backpressure_delay']) }}
{%- endmacro %}
