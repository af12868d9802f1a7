{#- A query for the deliveries that have a successor, or whose failed send was refused: whether delivered or not, they are not sent any more.

    deliveries: a relation with all decisions. -#}
{% macro deliveries_answered(deliveries) -%}
    select
        prior_delivery as delivery_id,
        prior_due as due_at
    from {{ deliveries }}
    where
        prior_delivery is not null
        and (
            decision in {{ decisions_where(succeeds='yes') }}
            -- a failed send that no rule has a place for: see result_input_id
            or (decision = 'refused' and startswith(input_id, concat(prior_delivery, '@')))
        )
{%- endmacro %}
