-- error_class_ancestors: the ancestors of each class in the seed `error_classes`, with the distance: 0 for the class itself, 1 for its parent.
with

error_classes as (

    select * from {{ ref('error_classes') }}

),

parents as (

    select coalesce(map_from_entries(collect_list(struct(error_class, parent))), map()) as parent_of
    from error_classes

),

classes as (

    select error_class from error_classes
    union
    select parent from error_classes

),

lines as (

    -- at most 20 steps: without a bound, a cycle in the seed would never end
    select
        classes.error_class,
        aggregate(
            sequence(1, 20),
            array(classes.error_class),
            (line, step) -> case
                when parents.parent_of[try_element_at(line, -1)] is null then line
                else concat(line, array(parents.parent_of[try_element_at(line, -1)]))
            end
        ) as line
    from classes
    cross join parents

),

ancestors as (

    select
        error_class,
        posexplode(line) as (distance, ancestor)
    from lines

)

select * from ancestors
