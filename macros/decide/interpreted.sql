{#- The statements that switch Spark's code generation off (`yes` is true), or on again. A decide run has other literals each time, so that its code
    would be generated, compiled and warmed up anew, for a few thousand rows: interpreted, 50 reports take 3 s of CPU instead of 6 s, and 5,000
    take 4 s instead of 7 s. Queries that read millions of rows are slower without it: so it is off for the decide run only. If a decide run fails,
    it stays off until the next one succeeds: large queries are slower meanwhile, and no result is wrong. -#}
{% macro interpreted(yes) %}
    {{ return([
        'set spark.sql.codegen.wholeStage = false',
        'set spark.sql.codegen.factoryMode = NO_CODEGEN',
    ] if yes else [
        'reset spark.sql.codegen.wholeStage',
        'reset spark.sql.codegen.factoryMode',
    ]) }}
{% endmacro %}
