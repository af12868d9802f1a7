{#- Where a report goes as a dead letter that can't be placed: of which record it tells is unknown. -#}
{% macro dead_letter_topic_of_reports(report_topic) -%}
    concat({{ report_topic }}, '.dlq')
{%- endmacro %}
