{#- What is asked of one delivery of ours, and written into `events` like everything that is decided: the kinds of such inputs, as a SQL list. Of the
    loop: release, probe. Of operators, through a command: all others.

    which (not SQL): those that send what waits as it is (`send_anew`), those about what waits (`waiting`), those about a dead letter or what was
    refused (`dead_letter`), those that only say something about it (`annotate`); without it, all. -#}
{% macro order_kinds(which=none) -%}
    {%- if which == 'send_anew' -%}
        {{ reasons_where(order='waiting', sends='yes') }}
    {%- elif which == 'annotate' -%}
        {{ reasons_where(order='dead_letter', sends='') }}
    {%- elif which -%}
        {{ reasons_where(order=which) }}
    {%- else -%}
        {{ reasons_where(order=['waiting', 'dead_letter']) }}
    {%- endif -%}
{%- endmacro %}
