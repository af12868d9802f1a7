{#- A place in a statement of the decide step for a value that differs from run to run: the value that stands there in compiled SQL, between two
    comments, the first with its name. With the defaults, a statement decides nothing and looks nothing up. Before a statement is run, its
    slots are filled: by fill_slots in a `dbt run`, by orchestration/tables/decide_statements.py in the loop, which has dbt compile the SQL once.

    name (not SQL). default: SQL, or nothing. -#}
{% macro slot(name, default='0') -%}
    /*:{{ name }}:*/{{ default }}/*:*/
{%- endmacro %}
