{#- A query for the decision that the state of each message follows from: the last one that changed it.

    decisions: a relation with the columns of `decisions` that matter; all decisions about a message, or none. -#}
{% macro last_decisions_of(decisions) -%}
    select * except (from_last) from (
        select
            *,
            row_number() over (partition by message_id order by batch desc, due_at desc, {{ input_order() }} desc) as from_last
        from {{ decisions }}
        where
            decision not in ('duplicate', 'note') and decision not in {{ operator_decisions() }}
            -- an operator's order that was refused changes nothing
            and not (decision = 'refused' and input_id like 'loop/%')
    )
    where from_last = 1
{%- endmacro %}
