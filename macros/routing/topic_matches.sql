{#- Whether an entry of the seeds matches a topic: a name, a regular expression that begins with ^, or * for any. -#}
{% macro topic_matches(topic, pattern) -%}
    case
        when {{ pattern }} = '*' then true
        when startswith({{ pattern }}, '^') then {{ topic }} rlike {{ pattern }}
        else {{ topic }} = {{ pattern }}
    end
{%- endmacro %}
