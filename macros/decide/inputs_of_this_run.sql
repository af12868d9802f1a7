{#- The inputs of this run, for the queries that find its bounds. The loop has them in memory by then, and names the view of them in the slot; the model
    itself, inputs_gathered, reads the catalog's view, which the loop has analysed. -#}
{% macro inputs_of_this_run() -%}
    (
        select * from {{ slot('inputs_of_this_run', ref('stg_inputs')) }}
        where {{ in_this_run('batch') }}
    )
{%- endmacro %}
