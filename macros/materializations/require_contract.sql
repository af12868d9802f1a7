{#- A post-hook of all models: stops the run if a column of a view with a contract has another type than the model's YAML says. The names agree already
    (spark__create_view_as). The types come from the catalog, so that no view is analysed for this. -#}
{% macro require_contract() %}
    {%- if execute and config.get('contract').enforced -%}
        {%- for row in run_query('describe ' ~ this) if row['col_name'] in model.columns -%}
            {%- set promised = model.columns[row['col_name']].data_type -%}
            {%- if row['data_type'] | lower | replace(' ', '') != promised | lower | replace(' ', '') -%}
                {%- do exceptions.raise_compiler_error(
                    this.identifier ~ ': the column ' ~ row['col_name'] ~ ' is of type ' ~ row['data_type'] ~ ', and the contract in its YAML says ' ~ promised) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
{% endmacro %}
