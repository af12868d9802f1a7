{#- A rule that may decide about a cause, to sort by: the narrower scope first; in a scope what names anything before what holds for all
    others; then the outermost cause, and for one cause what looks at more than its class before what doesn't; then the class itself, a pattern (the longer
    first), an ancestor (the nearest first), any. Of two that are equal that of a set, which somebody has switched on; then the kinds decide, in the
    order of the var error_kind_precedence.

    rule: as in `rules`. place: the cause's place in the chain, from 0. distance: how far up the class is that the rule names; null for a pattern. -#}
{% macro rule_candidate(rule, place, distance) -%}
    struct(
        {{ rule }}.scope as scope,
        {{ rule }}.is_default as is_default,
        {{ place }} as place,
        case when {{ rule }}.looks_beyond_the_class then 0 else 1 end as by_condition,
        case {{ rule }}.matches when 'exact' then 1 when 'pattern' then 2 when 'parent' then 3 else 4 end as by_match,
        coalesce({{ distance }}, -length({{ rule }}.class_pattern), 0) as by_distance,
        {{ rule }}.by_set as by_set,
        {{ rule }}.kind_order as kind_order,
        {{ rule }}.rule as rule,
        {{ rule }}.kind as kind,
        {{ rule }}.message as message,
        {{ rule }}.codes as codes,
        nullif(array_position(header_names, {{ rule }}.header_name), 0) as header_place,
        {{ rule }}.header_value as header_value
    )
{%- endmacro %}
