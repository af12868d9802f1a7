{#- The decisions for which a condition holds, each once, and of what they send as much as their privacy shows. What isn't asked for isn't
    looked at: maintenance keeps what died apart from what is tried again, so that whole groups of rows are skipped.

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
