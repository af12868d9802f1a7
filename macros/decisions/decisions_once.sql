{#- A query for the decisions for which a condition holds, each once, without the payload and headers that their privacy hides. The condition is
    applied to both reads of `deliveries`, so that row groups are skipped: maintenance sorts dead letters apart from retries.

    condition: of columns of `deliveries`. -#}
{% macro decisions_once(condition='true') -%}
    select
        deliveries.* except (key, value, headers),
        case when {{ privacy_keeps('payload', 'deliveries.privacy') }} then deliveries.key end as key,
        case when {{ privacy_keeps('payload', 'deliveries.privacy') }} then deliveries.value end as value,
        filter(deliveries.headers, h -> not {{ is_denied_header('h.key', 'deliveries.privacy') }}) as headers
    from {{ ref('deliveries') }} as deliveries
    left semi join (
        {{ first_runs(ref('deliveries'), condition) }}
    ) as first_runs
        on
            deliveries.batch = first_runs.batch
            and deliveries.due_hour = first_runs.due_hour
            and deliveries.decide_run = first_runs.decide_run
    where {{ condition }}
{%- endmacro %}
