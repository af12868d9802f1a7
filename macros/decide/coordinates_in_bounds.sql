{#- Restricts topic, partition and offset to those of the decide step's inputs, as literals; false where there are none. With spans of too many
    partitions the statement would be long: then each topic has one span, and with too many topics all have one.

    spans: `named` or `origin` of lookup_bounds. -#}
{% macro coordinates_in_bounds(topic, partition, offset, spans) -%}
    {%- set topics = spans | groupby('topic') -%}
    {%- set is_by_partition = spans | length <= var('max_bounded_spans') -%}
    {%- if not spans -%}
        false
    {%- elif not is_by_partition and topics | length > var('max_bounded_topics') -%}
        {{ offset }} between {{ spans | map(attribute='from') | min }} and {{ spans | map(attribute='to') | max }}
    {%- else -%}
        (
            {%- for name, its_spans in topics %}
            ({{ topic }} = '{{ name }}' and
                {%- if is_by_partition %} (
                {%- for span in its_spans -%}
                ({{ partition }} = {{ span.partition }} and {{ offset }} between {{ span.from }} and {{ span.to }}){{ ' or ' if not loop.last }}
                {%- endfor -%}
                )
                {%- else %} {{ offset }} between {{ its_spans | map(attribute='from') | min }} and {{ its_spans | map(attribute='to') | max }}
                {%- endif -%}
            ){{ ' or' if not loop.last }}
            {%- endfor %}
        )
    {%- endif -%}
{%- endmacro %}
