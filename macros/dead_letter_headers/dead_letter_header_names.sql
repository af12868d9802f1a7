{#- The header profiles, each with the names of its headers: those that it writes, and those that are only removed from the message first, as they
    describe an earlier death. -#}
{% macro dead_letter_header_names() %}
    {{ return({
        'dlq': ['dlq-reason', 'dlq-error-class', 'dlq-original-topic', 'dlq-failed-at', 'dlq-attempts', 'dlq-stack'],
        'safi': ['x-dlq-metadata'],
        'spring': [
            'kafka_dlt-original-topic', 'kafka_dlt-original-partition', 'kafka_dlt-original-offset', 'kafka_dlt-original-timestamp',
            'kafka_dlt-original-timestamp-type', 'kafka_dlt-original-consumer-group', 'kafka_dlt-exception-fqcn',
            'kafka_dlt-exception-cause-fqcn', 'kafka_dlt-exception-message', 'kafka_dlt-exception-stacktrace'
        ],
        'connect': [
            '__connect.errors.topic', '__connect.errors.partition', '__connect.errors.offset', '__connect.errors.connector.name',
            '__connect.errors.task.id', '__connect.errors.stage', '__connect.errors.class.name', '__connect.errors.exception.class.name',
            '__connect.errors.exception.message', '__connect.errors.exception.stacktrace'
        ],
    }) }}
{% endmacro %}
