{#- Settings under which Spark evaluates expressions as they stand, or (false) generates code for them again. A decide run has other literals each
    time, so that its code would be generated, compiled and warmed up anew, for a few thousand rows: without, 50 reports take 3 s of CPU
    instead of 6 s, and 5,000 take 4 s instead of 7 s. What reads millions of rows is better off with it: hence for one statement only.
    A decide run that stops leaves the setting behind until the next that doesn't: slower for large queries, never wrong. -#}
{% macro interpreted(yes) %}
    {{ return([
        'set spark.sql.codegen.wholeStage = false',
        'set spark.sql.codegen.factoryMode = NO_CODEGEN',
    ] if yes else [
        'reset spark.sql.codegen.wholeStage',
        'reset spark.sql.codegen.factoryMode',
    ]) }}
{% endmacro %}
