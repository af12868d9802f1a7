{#- A rule's scope as text, for instance `topic orders, group billing`; null if the rule holds everywhere. -#}
{% macro scope_text(topic, consumer_group, source="'*'") -%}
    nullif(concat_ws(', ',
        case when {{ topic }} <> '*' then concat('topic ', {{ topic }}) end,
        case when {{ consumer_group }} <> '*' then concat('group ', {{ consumer_group }}) end,
        case when {{ source }} <> '*' then concat('source ', {{ source }}) end
    ), '')
{%- endmacro %}
