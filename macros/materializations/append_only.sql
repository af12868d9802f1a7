{#- The materialization of ledgers and of the wheel: created once, appended to, never replaced.

    - The table is created from the model's description when it doesn't exist, unless `refuse_creation` (a macro's name) objects.
    - A model with `appends: false` is written outside dbt: when it exists, nothing is done.
    - A model may say that it has nothing to append by leaving the marker `-- nothing to append` in its SQL. No snapshot is made then:
      an empty append to an Iceberg table is a commit, and a loop would make thousands.
    - --full-refresh changes nothing: what is in here can't be computed again.
    - A model may name a `guard`, a macro that returns `rows`, a condition, and `snapshot`, of the table, or none: the append is refused, as a
      whole, when anybody has written such rows since. There are none before it, either: for Iceberg it overwrites them.
    - Columns that a newer version of the project describes are added. A decide run, which runs nothing but its own model, doesn't look. -#}
{% materialization append_only, adapter='spark' %}

    {%- set target_relation = this -%}
    {%- set existing_relation = load_relation(this) -%}

    {{ run_hooks(pre_hooks) }}

    {%- if existing_relation is none -%}
        {%- if config.get('refuse_creation') -%}
            {%- do context[config.get('refuse_creation')]() -%}
        {%- endif -%}
        {%- call statement('main') -%}
            {{ create_described_table(target_relation) }}
        {%- endcall -%}
    {%- else -%}
        {%- if selected_resources | length > 1 -%}
            {%- do add_missing_columns(target_relation) -%}
        {%- endif -%}
        {%- if not config.get('appends', true) or '-- nothing to append' in sql -%}
            {#- a statement named main is owed to dbt; a comment would be sent to Spark, this is not -#}
            {%- call noop_statement('main', 'nothing to append') -%}{%- endcall -%}
        {%- else -%}
            {%- set appended = analysed_in_stages(sql) if config.get('stages') else sql -%}
            {%- call statement('main') -%}
                {%- if config.get('guard') -%}
                {{ insert_guarded(target_relation, appended, context[config.get('guard')]()) }}
                {%- else -%}
                insert into {{ target_relation }} by name
                {{ appended }}
                {%- endif -%}
            {%- endcall -%}
            {%- for stage in config.get('stages', []) -%}
                {%- do run_query('drop view if exists __dbt__cte__' ~ stage) -%}
            {%- endfor -%}
        {%- endif -%}
    {%- endif -%}

    {{ run_hooks(post_hooks) }}

    {{ return({'relations': [target_relation]}) }}

{% endmaterialization %}
