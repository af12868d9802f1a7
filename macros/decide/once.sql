{#- What a macro returns, asked once per invocation: all models of a decide run must see the same. Kept in `graph`, the one thing that the models
    of an invocation share.

    name (not SQL): what to remember it by. read: the macro, which has no arguments. -#}
{% macro once(name, read) %}
    {%- if name not in graph -%}
        {%- do graph.update({name: read()}) -%}
    {%- endif -%}
    {{ return(graph[name]) }}
{% endmacro %}
