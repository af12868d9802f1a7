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

    {{ ranked_routes('routes', descriptions) }}

),

gathered as (

    select sort_array(collect_list(struct(*))) as routes
    from ranked

)

select * from gathered
