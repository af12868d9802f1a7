{#- What is asked of one delivery of ours, and written into `events` like everything that is decided. Of the loop: release, probe. Of
    operators, through a command: all others.

    which: those that send what waits as it is (`send_anew`), those about what waits (`waiting`), those about a dead letter or what was refused (`dead_letter`),
    those that only say something about it (`annotate`), or none for all. -#}
{% macro order_kinds(which=none) -%}
    {%- set kinds = {
        'send_anew': ['release', 'probe', 'send_now'],
        'waiting': ['release', 'probe', 'send_now', 'cancel'],
        'dead_letter': ['redrive', 'discard', 'restore', 'note', 'purge'],
        'annotate': ['discard', 'restore', 'note', 'purge'],
    } -%}
    ('{{ (kinds[which] if which else kinds['waiting'] + kinds['dead_letter']) | join("', '") }}')
{%- endmacro %}
