{#- Whether the payload of a decision's message is not kept, but read from the original record when it is sent. What is sent anew stays as it was. A report
    that could not be attributed to a record has its own place as the original one, and keeps its payload.

    decisions, inputs, rules: aliases in the query. -#}
{% macro refers_to_original(decisions, inputs, rules) -%}
    coalesce(
        if(
            {{ inputs }}.is_report,
            {{ decisions }}.original_offset is not null
            and not (
                {{ decisions }}.original_topic = {{ decisions }}.report_topic
                and {{ decisions }}.original_partition = {{ decisions }}.report_partition
                and {{ decisions }}.original_offset = {{ decisions }}.report_offset
            )
            and {{ is_by_reference(
                'try_element_at(filter(' ~ rules ~ '.sources, s -> s.source = ' ~ decisions ~ '.source), 1).payload',
                rules ~ '.dialects[' ~ decisions ~ '.dialect]', inputs ~ '.key', inputs ~ '.value'
            ) }},
            {{ inputs }}.by_reference
        ),
        false
    )
{%- endmacro %}
