{#- The reason for which nothing is sent to a destination; null where nothing is against it. It must have a legal name, no source may read it, or
    what we send would come back as a report, and it must not be internal.

    destination: null where none was found. has_no_origin: only the topic is known in which the failure was reported. source_topics: an array
    of the patterns of all sources. -#}
{% macro destination_objection(destination, has_no_origin, source_topics) -%}
    case
        when {{ destination }} is null and {{ has_no_origin }} then 'no_original_topic'
        when {{ destination }} is null then 'no_route'
        when {{ kafka_topic(destination) }} is null then 'destination_not_legal'
        when {{ is_read_by_a_source(destination, source_topics) }} then 'destination_is_a_source'
        -- who may report failures must not write Kafka's own topics, nor give commands, by way of the loop
        when {{ is_internal_topic(destination) }} then 'destination_is_internal'
    end
{%- endmacro %}
