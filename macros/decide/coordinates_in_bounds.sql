{#- A condition on topic, partition and offset: within the spans of the decide run's inputs, as literals; false if there are none. More spans than
    var max_bounded_spans would make the statement long: then each topic has one span; with more topics than max_bounded_topics, all have one.

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
