{#- A query for one hash over all rows of all seeds that decisions depend on: two decisions with the same hash were made by the same rules. The
    columns of routes that only inform people are left out. -#}
{% macro rules_hash() -%}
    select sha2(concat_ws('\n', sort_array(collect_list(rule))), 256) as rules_hash
    from (
        {%- for seed in ['sources', 'dialects', 'routes', 'dead_letter_topics', 'privacy', 'retry_policies', 'error_rules', 'error_sets', 'error_classes', 'transparent_wrappers', 'publish_error_kinds'] %}
        select concat('{{ seed }} ', to_json(struct(*))) as rule
        from (select *{{ ' except (' ~ route_descriptions() | join(', ') ~ ')' if seed == 'routes' }} from {{ ref(seed) }}) as seed
        {{ 'union all' if not loop.last }}
        {%- endfor %}
    )
{%- endmacro %}
