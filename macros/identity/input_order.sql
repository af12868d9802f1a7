{#- The place of a decision among all decisions, by its input: a struct to compare. Tables of decisions don't have the index of an event, which is the
    last part of input_id; compared as text, index 10 would come before 9. -#}
{% macro input_order() -%}
    struct(batch, report_topic, report_partition, report_offset, try_cast(split_part(input_id, '/', -1) as int), input_id)
{%- endmacro %}
