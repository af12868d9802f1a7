{#- The batches that this run decides: those after `watermark` up to `upto`. The loop passes both; otherwise they are read from the tables, for
    which Iceberg needs only metadata. Each append is committed before the next begins, so everything up to `upto` is complete. -#}
{% macro bounds_of_batches() %}
    {%- set query -%}
        with

        ends as (

            select
                (select coalesce(max(batch), 0) from {{ wheel_relation() }} {{ slot('as_of', '') }}) as decided,
                cast({{ slot('given_watermark', 'null') }} as bigint) as given_watermark,
                coalesce(
                    cast({{ slot('given_upto', 'null') }} as bigint),
                    greatest(
                        (select coalesce(max(batch), 0) from {{ ref('events') }}),
                        (select coalesce(max(batch), 0) from {{ ref('publish_results') }}),
                        (select coalesce(max(batch), 0) from {{ ref('ticks') }})
                    )
                ) as upto

        ),

        begun as (

            select
                upto,
                {{ stop_unless(
                    'given_watermark is null or given_watermark = upto or decided <= given_watermark',
                    'coalesce(given_watermark, greatest(decided, (select coalesce(max(watermark), 0) from ' ~ ref('ticks') ~ ')))',
                    "concat('batches up to ', decided, ' are decided already, not just those up to ', given_watermark, ': another decide run came first, or this one is repeated. Nothing was written.')",
                ) }} as watermark
            from ends

        )

        select
            watermark,
            greatest(upto, watermark) as upto
        from begun
    {%- endset -%}
    {{ return(query) }}
{% endmacro %}
