{#- How long a dead letter that Kafka has refused waits before it is written again, in milliseconds: the policy's delay, or a minute without a policy;
    after twenty refusals each time 5 % longer, up to a day. Dead letters are retried without end, and each try adds rows to two tables: with a
    constant pause, those that can't be sent would fill the tables. -#}
{% macro dead_letter_pause_ms(delay_ms, refusals) -%}
    cast(least(
        coalesce({{ delay_ms }}, 60000) * power(1.05, least(greatest({{ refusals }} - 20, 0), 1000)),
        greatest(coalesce({{ delay_ms }}, 60000), 86400000)
    ) as bigint)
{%- endmacro %}
