{#- The materialization of a step that is computed once per fold and read several times: a cached table of this Spark session, gone with it.
    Nothing is written, and no other session sees it, so a fold beside this one can't take it for its own. Read it with `in_session`. -#}
{% materialization session_table, adapter='spark' %}

    {%- set relation = this.include(database=false, schema=false) -%}

    {{ run_hooks(pre_hooks) }}

    {%- call statement() -%}
        uncache table if exists {{ relation }}
    {%- endcall -%}
    {%- call statement() -%}
        create or replace temporary view {{ relation }} as
        {{ sql }}
    {%- endcall -%}
    {%- call statement('main') -%}
        cache table {{ relation }}
    {%- endcall -%}

    {{ run_hooks(post_hooks) }}

    {{ return({'relations': []}) }}

{% endmaterialization %}
