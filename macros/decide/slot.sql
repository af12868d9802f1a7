{#- A place in a statement of the decide step for a value that differs from run to run: a comment with its name, and the value that stands there in
    compiled SQL. With the values of compiled SQL nothing is decided and nothing is looked up. Before a statement is run, its slots are filled:
    by slots_filled in a `dbt run`, by orchestration/tables/decide_statements.py in the loop, which compiles the SQL once.

    name (not SQL). default: one word, or nothing. -#}
{% macro slot(name, default='0') -%}
    /*:{{ name }}:*/{{ default }}
{%- endmacro %}
