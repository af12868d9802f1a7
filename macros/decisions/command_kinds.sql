{#- The kinds of operators' commands, as a SQL list: those that give orders about the deliveries of their list, and those about another command.

    which (not SQL): `about_commands` for the latter alone; without it, all. -#}
{% macro command_kinds(which=none) -%}
    {%- set orders = ['redrive', 'discard', 'restore', 'note', 'purge', 'send_now', 'cancel', 'in_turn'] -%}
    {%- set about_commands = ['pause', 'resume', 'stop'] -%}
    ('{{ (about_commands if which == 'about_commands' else orders + about_commands) | join("', '") }}')
{%- endmacro %}
