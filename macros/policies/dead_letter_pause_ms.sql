{#- How long a dead letter waits that Kafka has refused, in milliseconds: as long as the policy says, a minute without one; and after twenty
    refusals each time a twentieth longer, up to a day. Each try is a row in two tables, and there is no last one: at a steady pace, what
    can't be sent would fill them. -#}
{% macro dead_letter_pause_ms(delay_ms, refusals) -%}
    cast(least(
        coalesce({{ delay_ms }}, 60000) * power(1.05, least(greatest({{ refusals }} - 20, 0), 1000)),
        greatest(coalesce({{ delay_ms }}, 60000), 86400000)
    ) as bigint)
{%- endmacro %}
