-- routes_described: what the routes say for people, in one row, the most specific route first. A decide run reads nothing of it.

{%- set descriptions = route_descriptions() %}

with

routes as (

    select * from {{ ref('routes') }}
    where
        {%- for column in descriptions %}
        {{ 'or ' if not loop.first }}{{ column }} <> ''
        {%- endfor %}

),

ranked as (

    select
        {{ route_rank('topic', 'consumer_group') }} as rank,
        case when error_kind = '*' then 1 else 0 end as by_kind,
        topic,
        consumer_group,
        error_kind,
        {%- for column in descriptions %}
        {{ column }}{{ ',' if not loop.last }}
        {%- endfor %}
    from routes

),

gathered as (

    select sort_array(collect_list(struct(*))) as routes
    from ranked

)

select * from gathered
