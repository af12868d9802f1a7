{#- Why a message died, for a dead letter's headers: the error's message, else the reason of the decision; cut at 1 kB. -#}
{% macro dead_letter_reason() -%}
    {{ utf8_cut('coalesce(error_message, reason)', 1024) }}
{%- endmacro %}
