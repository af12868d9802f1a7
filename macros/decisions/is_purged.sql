{#- Whether an operator has purged a decision's payload. A purge is of all decisions up to its life cycle that were made by then. Later ones of that life
    cycle are hidden if they only repeat or annotate the message: a refused report that comes again may begin it anew.

    decisions, purges: aliases in the query; purges is null where the message has none. -#}
{% macro is_purged(decisions, purges) -%}
    coalesce(
        exists(
            {{ purges }}.reach,
            one -> {{ decisions }}.life_cycle <= one.life_cycle
                and (
                    {{ decisions }}.batch <= one.batch
                    or {{ decisions }}.delivery_id is null
                    and ({{ decisions }}.decision in ('duplicate', 'refused') or {{ decisions }}.decision in {{ operator_decisions() }})
                )
        ),
        false
    )
{%- endmacro %}
