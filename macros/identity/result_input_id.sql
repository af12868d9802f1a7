{#- The input id of a failed send: `delivery id@batch`, the batch being that of the result.

    result: alias of `publish_results` in the query. -#}
{% macro result_input_id(result) -%}
    concat_ws('@', {{ result }}.delivery_id, {{ result }}.batch)
{%- endmacro %}
