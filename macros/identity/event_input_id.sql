{#- The input id of an event: `topic id/partition/offset/index`.

    event: alias of `events` in the query. -#}
{% macro event_input_id(event) -%}
    concat_ws('/', {{ event }}.topic_id, {{ event }}.partition, {{ event }}.offset, {{ event }}.index)
{%- endmacro %}
