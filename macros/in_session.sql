{#- A model that is materialized as `session_table`, by the name that it has in this session. -#}
{% macro in_session(name) -%}
    {{ ref(name).include(database=false, schema=false) }}
{%- endmacro %}
