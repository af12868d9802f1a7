{#- The destination of a retry: the route's retry topic; or the original topic, if the template has {group} and the group is unknown. -#}
{% macro retry_destination(retry_topic, original_topic, consumer_group, error_kind) -%}
    case
        when {{ consumer_group }} is null and contains({{ retry_topic }}, '{group}') then {{ original_topic }}
        else {{ topic_from_template(retry_topic, original_topic, "coalesce(" ~ consumer_group ~ ", '')", error_kind) }}
    end
{%- endmacro %}
