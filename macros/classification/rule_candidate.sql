{#- A rule that may match a cause, as a struct whose first fields are what candidates are sorted by: the narrower scope first; in a scope, rules with
    conditions before those without; the outermost cause; for one cause, rules that ask for more than the class; the class itself, a pattern (the
    longer first), an ancestor (the nearest first), any class; of equal rules one from an error set; then the kinds, in the order of the var
    error_kind_precedence.

    rule: as in `rules`. place: the cause's place in the chain, from 0. distance: from the cause's class to the ancestor that the rule names; null
    for a pattern. -#}
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
