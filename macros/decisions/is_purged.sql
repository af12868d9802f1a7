{#- Whether an operator has purged a decision's payload. A purge is of all decisions up to its life cycle that were made by then. Later ones of that life
    cycle are hidden if they only repeat or annotate the message (they have no delivery id): a refused report that comes again may begin it anew.

    decisions, purges: aliases in the query; purges is null where the message has none. -#}
{% macro is_purged(decisions, purges) -%}
    coalesce(
        {{ decisions }}.life_cycle <= {{ purges }}.life_cycle and ({{ decisions }}.batch <= {{ purges }}.batch or {{ decisions }}.delivery_id is null),
        false
    )
{%- endmacro %}
