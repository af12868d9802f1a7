{#- The reason for which nothing may be sent to a destination; null if it is allowed. Its name must be legal; no source may read it, or what is sent
    would come back as a report; and it must not be an internal topic.

    destination: null if none was found. has_no_origin: the original topic is unknown. source_topics: an array of the topics of all sources: names, or
    regular expressions that begin with ^. -#}
{% macro destination_objection(destination, has_no_origin, source_topics) -%}
    case
        when {{ destination }} is null and {{ has_no_origin }} then 'no_original_topic'
        when {{ destination }} is null then 'no_route'
        when {{ kafka_topic(destination) }} is null then 'destination_not_legal'
        when {{ is_read_by_a_source(destination, source_topics) }} then 'destination_is_a_source'
        -- else whoever may report failures could make the loop write to Kafka's own topics, or give commands
        when {{ is_internal_topic(destination) }} then 'destination_is_internal'
    end
{%- endmacro %}
