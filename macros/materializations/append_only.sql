{#- The materialization of the ledgers and of the wheel: the table is created once, appended to, and never replaced.

    - If the table doesn't exist, it is created from the columns in the model's YAML, unless the macro named by `refuse_creation` raises an error.
    - A model with `appends: false` is written outside dbt: if the table exists, nothing is done.
    - If the SQL has the comment `-- nothing to append`, nothing is executed: an empty append to an Iceberg table is a commit, too, and a loop would
      make thousands.
    - --full-refresh has no effect: the rows can't be computed again.
    - `guard` names a macro that returns a condition (`rows`) and a snapshot of the table (`snapshot`, or none): if another writer has added rows that
      fulfil the condition since that snapshot, the whole append is refused. No such rows may exist in the snapshot: the append would replace them.
    - Columns that are new in the YAML are added. A decide run, which runs a single model, skips that. -#}
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
            {#- dbt requires a statement named main; noop_statement sends nothing to Spark -#}
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
