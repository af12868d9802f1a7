-- error_rules_ranked: all error rules in one row: a map from each class to the rules that name it or an ancestor, and an array of all other rules.
with

rules as (

    select
        *,
        struct(
            scope,
            is_default,
            case when error_set is null then 1 else 0 end as by_set,
            kind_order,
            rule,
            kind,
            matches,
            looks_beyond_the_class,
            case when matches = 'pattern' then error_class end as class_pattern,
            source,
            topic,
            consumer_group,
            message,
            codes,
            header_name,
            header_value
        ) as what
    from {{ ref('error_rules_read') }}

),

ancestors as (

    select * from {{ ref('error_class_ancestors') }}

),

matched as (

    select
        class_name as error_class,
        0 as distance,
        what
    from rules
    where matches = 'exact'

    union all

    -- the known descendants of the class, and the class itself, even if error_classes doesn't have it
    select
        coalesce(ancestors.error_class, rules.class_name) as error_class,
        coalesce(ancestors.distance, 0) as distance,
        rules.what
    from rules
    left join ancestors on rules.class_name = ancestors.ancestor
    where rules.matches = 'parent'

),

by_class as (

    select
        error_class,
        collect_list(struct(distance, what)) as rules
    from matched
    group by error_class

),

gathered as (

    select
        (
            select coalesce(map_from_entries(collect_list(struct(error_class, rules))), map())
            from by_class
        ) as class_rules,
        (
            select coalesce(sort_array(collect_list(struct(what))), array())
            from rules
            where matches in ('pattern', 'any')
        ) as other_rules,
        (
            select coalesce(sort_array(collect_set(header_name)), array())
            from rules
        ) as header_names

)

select * from gathered
