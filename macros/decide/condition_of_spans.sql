{#- The text of a condition on topic, partition and offset, in brackets: within spans of offsets, as literals; `false` if there are none. More spans
    than var max_bounded_spans would make a statement long: then each topic has one span; with more topics than max_bounded_topics, all share one.

    spans: an array of struct<topic, partition, first, last>. prefix (not SQL): what the names of the three columns begin with. -#}
{% macro condition_of_spans(spans, prefix='') -%}
    case
        when size({{ spans }}) = 0 then 'false'
        when size({{ spans }}) <= {{ var('max_bounded_spans') }}
            then concat('(', array_join(array_sort(transform({{ spans }}, s -> concat(
                "({{ prefix }}topic = '", s.topic, "' and {{ prefix }}partition = ", s.partition, ' and {{ prefix }}offset between ', s.first, ' and ', s.last, ')'
            ))), ' or '), ')')
        when size(array_distinct({{ spans }}.topic)) <= {{ var('max_bounded_topics') }}
            then concat('(', array_join(transform(array_sort(array_distinct({{ spans }}.topic)), t -> concat(
                "({{ prefix }}topic = '", t, "' and {{ prefix }}offset between ",
                array_min(filter({{ spans }}, s -> s.topic = t).first), ' and ', array_max(filter({{ spans }}, s -> s.topic = t).last), ')'
            )), ' or '), ')')
        else concat('({{ prefix }}offset between ', array_min({{ spans }}.first), ' and ', array_max({{ spans }}.last), ')')
    end
{%- endmacro %}
