{#- Whether no message is ever sent to a topic, whoever names it: internal ones of Kafka and the Schema Registry (an underscore begins their
    names), and those that REDRIVE_INTERNAL_TOPICS lists: redrive's own. A name that ends with * stands for all that begin so. -#}
{% macro is_internal_topic(topic) -%}
    (
        startswith({{ topic }}, '_')
        {%- for name in env_var('REDRIVE_INTERNAL_TOPICS', 'redrive.commands').split() %}
        or {% if name.endswith('*') %}startswith({{ topic }}, {{ sql_text(name[:-1]) }}){% else %}{{ topic }} = {{ sql_text(name) }}{% endif %}
        {%- endfor %}
    )
{%- endmacro %}
