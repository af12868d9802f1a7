{#- A query for the decisions for which a condition holds, each once, as they may be shown: without what their privacy hides, and without what an
    operator has purged. -#}
{% macro decisions_shown(condition='true') -%}
    {%- set purged = ['error_message', 'error_stack', 'matched', 'key', 'value', 'headers', 'by_reference'] -%}
    select
        decisions_once.* except ({{ purged | join(', ') }}),
        {%- for column in purged %}
        case when not {{ is_purged('decisions_once', 'purges') }} then decisions_once.{{ column }} end as {{ column }}{{ ',' if not loop.last }}
        {%- endfor %}
    from (
        {{ decisions_once(condition) }}
    ) as decisions_once
    left join {{ ref('purges') }} as purges on decisions_once.message_id = purges.message_id
{%- endmacro %}
