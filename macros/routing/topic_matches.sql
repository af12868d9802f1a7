{#- Whether a topic is meant by a pattern as the seeds write it: a name, a regular expression that begins with ^, or * for any. -#}
{% macro topic_matches(topic, pattern) -%}
    case
        when {{ pattern }} = '*' then true
        when startswith({{ pattern }}, '^') then {{ topic }} rlike {{ pattern }}
        else {{ topic }} = {{ pattern }}
    end
{%- endmacro %}
