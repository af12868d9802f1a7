{#- A query for the earlier decisions for which a condition holds, about the original coordinates that this run's inputs name.

    The bounds are ranges, and include rows of other messages: the join leaves only those of the inputs. -#}
{% macro decided_at_origins(condition) -%}
    select * from {{ wheel() }} as deliveries
    left semi join {{ ref('inputs_gathered') }} as inputs
        on
            deliveries.original_topic = inputs.origin_topic
            and deliveries.original_partition = inputs.origin_partition
            and deliveries.original_offset = inputs.origin_offset
    where ({{ condition }}) and {{ slot('origin', 'false') }}
{%- endmacro %}
