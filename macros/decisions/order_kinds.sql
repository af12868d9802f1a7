{#- The kinds of orders, as a SQL list. An order is an event that asks something of one delivery: the loop's are release and probe, and those
    about followers; all others come from operators' commands.

    which (not SQL): orders that send a waiting retry as it is (`send_anew`), orders about waiting retries (`waiting`), orders about a dead letter or
    a refused report (`dead_letter`), those of them that send nothing (`annotate`), orders about followers (`follower`); without it, all. -#}
{% macro order_kinds(which=none) -%}
    {%- if which == 'send_anew' -%}
        {{ reasons_where(order='waiting', sends='yes') }}
    {%- elif which == 'annotate' -%}
        {{ reasons_where(order='dead_letter', sends='') }}
    {%- elif which -%}
        {{ reasons_where(order=which) }}
    {%- else -%}
        {{ reasons_where(order=['waiting', 'dead_letter', 'follower']) }}
    {%- endif -%}
{%- endmacro %}
