{#- Restricts topic and offset to those of the fold's inputs, as literals; false where there are none. -#}
{% macro coordinates_in_bounds(topic, offset, spans) -%}
    {%- if not spans -%}
        false
    {%- elif spans | length > var('max_bounded_topics') -%}
        {{ offset }} between {{ spans | map(attribute='from') | min }} and {{ spans | map(attribute='to') | max }}
    {%- else -%}
        (
            {%- for span in spans %}
            ({{ topic }} = '{{ span.topic }}' and {{ offset }} between {{ span.from }} and {{ span.to }}){{ ' or' if not loop.last }}
            {%- endfor %}
        )
    {%- endif -%}
{%- endmacro %}
