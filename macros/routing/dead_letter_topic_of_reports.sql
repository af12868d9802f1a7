{#- The topic that a report goes to as a dead letter (an orphan), if it is unknown which message it is about. -#}
{% macro dead_letter_topic_of_reports(report_topic) -%}
    concat({{ report_topic }}, '.dlq')
{%- endmacro %}
