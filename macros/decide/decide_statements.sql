{#- The statements that the loop runs in addition to the models of the decide step, with their slots, separated by lines `;`: the queries of
    decide_bounds, and the append of what the model `deliveries` selects, which the loop has made a temporary view.

    appended: the name of that view. -#}
{% macro decide_statements(appended) -%}
    {%- set node = graph.nodes['model.redrive.deliveries'] -%}
    {%- set statements = decide_bounds() + [
        insert_guarded(wheel_relation(), node.columns, 'select * from ' ~ appended, node.config.guard)
    ] -%}
    {{ statements | join('\n;\n') }}
{%- endmacro %}
