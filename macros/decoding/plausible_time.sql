{#- A time that a report or a record states, if it is between 1970 and 2099; else null. Go writes the year 1 for a time that isn't set. Some languages
    can't represent times outside the years 1 to 9999, or near these in some time zones. -#}
{% macro plausible_time(timestamp) -%}
    case when unix_millis({{ timestamp }}) between 0 and {{ limits('moment_ms') }} then {{ timestamp }} end
{%- endmacro %}
