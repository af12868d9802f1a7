-- routes_described: the columns of routes that inform people and decide nothing (owner, runbook, ...), in one row, the most specific route first.

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
