{#- The names and expressions of headers that a dead letter by reference doesn't take from the original record: those that its privacy denies, and those
    of its header profile, as `payloads_kept` removes them from headers that are in the tables. -#}
{% macro headers_left_out() -%}
    concat(coalesce(privacy.denied_headers, array()), {{ headers_of_profile('header_profile') }})
{%- endmacro %}
