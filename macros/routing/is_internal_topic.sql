{#- Whether a topic is internal, so that nothing may be sent to it: one whose name begins with an underscore, like those of Kafka and the Schema
    Registry, or one that REDRIVE_INTERNAL_TOPICS lists, like redrive's own. `name*` in that list stands for all topics that begin with `name`. -#}
{% macro is_internal_topic(topic) -%}
    (
        startswith({{ topic }}, '_')
        {%- for name in env_var('REDRIVE_INTERNAL_TOPICS', 'redrive.commands redrive.sequences').split() %}
        or {% if name.endswith('*') %}startswith({{ topic }}, {{ sql_text(name[:-1]) }}){% else %}{{ topic }} = {{ sql_text(name) }}{% endif %}
        {%- endfor %}
    )
{%- endmacro %}
