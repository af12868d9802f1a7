{#- Calls a macro once per invocation, and returns the same value to every caller: all models of a decide run must see the same. The value is kept
    in `graph`, the only object that the models of an invocation share.

    name (not SQL): the key under which the value is kept. read: the macro, which has no arguments. -#}
{% macro once(name, read) %}
    {%- if name not in graph -%}
        {%- do graph.update({name: read()}) -%}
    {%- endif -%}
    {{ return(graph[name]) }}
{% endmacro %}
