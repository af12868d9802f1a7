{#- The name of a failed send as the input of a decision: the delivery and the append that brought the result.

    result: alias of `publish_results` in the query. -#}
{% macro result_input_id(result) -%}
    concat_ws('@', {{ result }}.delivery_id, {{ result }}.batch)
{%- endmacro %}
