{#- Returns the queries that find what a decide run decides and looks up, in their order. Each has one row, and each of its columns is the value of
    the slot with that name, in this run's later queries and in its statement; null leaves a slot as it is.

    All of it becomes literals, so that Iceberg skips all other files: how long a run takes doesn't depend on how many deliveries wait. The values are
    numbers, and conditions on topics whose names passed kafka_topic: they are safe in a statement. -#}
{% macro decide_bounds() %}
    {{ return([bounds_of_snapshot(), bounds_of_batches(), bounds_of_inputs(), bounds_of_rows(), bounds_of_answers(), bounds_of_payloads()]) }}
{% endmacro %}
