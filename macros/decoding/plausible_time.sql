{#- A time that somebody else stated, if it lies between 1970 and 2099; else null. Go writes the year 1 for no time at all, and a clock may
    say anything: beyond the years 1 to 9999 some languages can't hold it, and near them not in every time zone. -#}
{% macro plausible_time(timestamp) -%}
    case when unix_millis({{ timestamp }}) between 0 and {{ limits('moment_ms') }} then {{ timestamp }} end
{%- endmacro %}
