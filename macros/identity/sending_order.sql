{#- What a delivery must stay in order with when it is sent; null if order doesn't matter: nothing else of its sequence is sent meanwhile.

    delivery: alias of `deliveries` in the query. -#}
{% macro sending_order(delivery) -%}
    case
        when {{ delivery }}.kind = 'publish' then {{ delivery }}.sequence
        when {{ delivery }}.sequence_place is not null
            then {{ sequence_key(delivery ~ '.consumer_group', delivery ~ '.original_topic', delivery ~ '.original_partition', delivery ~ '.sequence') }}
    end
{%- endmacro %}
