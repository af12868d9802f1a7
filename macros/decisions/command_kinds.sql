{#- What an operator's command may be: orders, each about the deliveries of its list; and what is about another command. -#}
{% macro command_kinds(which=none) -%}
    {%- set orders = ['redrive', 'discard', 'restore', 'note', 'purge', 'send_now', 'cancel'] -%}
    {%- set about_commands = ['pause', 'resume', 'stop'] -%}
    ('{{ (about_commands if which == 'about_commands' else orders + about_commands) | join("', '") }}')
{%- endmacro %}
