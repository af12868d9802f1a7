{#- The templates of all destinations, as an array: the retry and dead letter topics of all routes, and the dead letter topics of error classes.

    routes, dead_letter_topics: arrays of their rows. -#}
{% macro topic_templates(routes, dead_letter_topics) -%}
    array_sort(array_except(
        concat(
            flatten(transform({{ routes }}, r -> array(r.retry_topic, r.dead_letter_topic))),
            transform({{ dead_letter_topics }}, t -> t.dead_letter_topic)
        ),
        array('{{ var('no_topic') }}')
    ))
{%- endmacro %}
