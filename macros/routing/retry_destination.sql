{#- Where a retry goes: to the route's retry topic, or to the original topic where that template asks for a group and none is known. -#}
{% macro retry_destination(retry_topic, original_topic, consumer_group, error_kind) -%}
    case
        when {{ consumer_group }} is null and contains({{ retry_topic }}, '{group}') then {{ original_topic }}
        else {{ topic_from_template(retry_topic, original_topic, "coalesce(" ~ consumer_group ~ ", '')", error_kind) }}
    end
{%- endmacro %}
