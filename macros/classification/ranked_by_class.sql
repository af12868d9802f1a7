{#- A query for the rules of a seed that have an error class, their sort keys first: the narrower scope first, as with routes; in a scope the class
    itself, a regular expression (the longer first), an ancestor (the nearest first), any. The first one that matches counts.

    rules, ancestors: relations; the rules have error_class, topic and consumer_group. columns (a list of names): the rules' other columns that are
    wanted. -#}
{% macro ranked_by_class(rules, ancestors, columns) -%}
    select
        {{ route_rank('named.topic', 'named.consumer_group') }} as rank,
        case named.matches when 'exact' then 1 when 'pattern' then 2 when 'parent' then 3 else 4 end as by_match,
        case named.matches when 'pattern' then -length(named.error_class) else coalesce(ancestors.distance, 0) end as by_distance,
        -- the known descendants of the class, and the class itself, even if error_classes doesn't have it
        case when named.matches <> 'pattern' then coalesce(ancestors.error_class, named.class_name) end as error_class,
        case named.matches when 'pattern' then named.error_class when 'any' then '^' end as class_pattern,
        named.topic,
        named.consumer_group,
        {%- for column in columns %}
        named.{{ column }}{{ ',' if not loop.last }}
        {%- endfor %}
    from (
        select
            *,
            {{ class_match('error_class') }} as matches,
            {{ class_named('error_class') }} as class_name
        from {{ rules }}
    ) as named
    left join {{ ancestors }} as ancestors on named.matches = 'parent' and named.class_name = ancestors.ancestor
{%- endmacro %}
