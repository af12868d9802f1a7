{#- The materialization of the ledgers and of the wheel: the table is created once, appended to, and never replaced.

    - If the table doesn't exist, it is created, empty, from the columns in the model's YAML, unless the macro named by `refuse_creation` raises an
      error.
    - A model with `appends: false` is written outside dbt: if the table exists, nothing is done.
    - `slots` names a macro that returns the values of the SQL's slots (see `slot`). If its `inputs` are 0, nothing is executed: an empty append to an
      Iceberg table is a commit, too, and a loop would make thousands.
    - `guard` is a condition on rows: if another writer has added such rows since the slots were read, the whole append is refused (insert_guarded).
    - --full-refresh has no effect: the rows can't be computed again.
    - Columns that are new in the YAML are added, unless the run selects this model alone. -#}
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
        {%- set slots = context[config.get('slots')]() if config.get('slots') else {} -%}
        {%- if not config.get('appends', true) or slots.inputs == '0' -%}
            {#- dbt requires a statement named main; noop_statement sends nothing to Spark -#}
            {%- call noop_statement('main', 'nothing to append') -%}{%- endcall -%}
        {%- elif config.get('guard') -%}
            {%- call statement('main') -%}
                {{ fill_slots(insert_guarded(target_relation, model.columns, sql, config.get('guard')), slots) }}
            {%- endcall -%}
        {%- else -%}
            {%- call statement('main') -%}
                insert into {{ target_relation }} by name
                {{ fill_slots(sql, slots) }}
            {%- endcall -%}
        {%- endif -%}
    {%- endif -%}

    {{ run_hooks(post_hooks) }}

    {{ return({'relations': [target_relation]}) }}

{% endmaterialization %}
