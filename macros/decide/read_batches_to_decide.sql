{#- Returns which batches are to be decided, as a dictionary of watermark, upto and snapshot. The loop passes the batches as vars; else they are read
    from the tables, which Iceberg answers from metadata. Each append is committed before the next begins, so everything up to `upto` is complete.

    No batch may be decided twice: the rules may have changed in between, and a message would have two decisions. So the snapshot of the wheel is
    read first, and the last decided batch from that snapshot: what another decide run commits later is a conflict (decide_guard).

    It runs before all other queries of a decide run, and so it also switches code generation off (`interpreted`); a post-hook of `deliveries`
    switches it on again. -#}
{% macro read_batches_to_decide() %}

    {%- for setting in interpreted(true) -%}
        {%- do run_query(setting) -%}
    {%- endfor -%}

    {%- set given = {'watermark': var('watermark'), 'upto': var('upto')} -%}
    {%- set is_given = given.watermark is not none and given.upto is not none -%}
    {%- if is_given and given.watermark == given.upto or load_relation(wheel_relation()) is none -%}
        {%- set nothing = (given.upto if is_given else 0) | int -%}
        {{ return({'watermark': nothing, 'upto': nothing, 'snapshot': none}) }}
    {%- endif -%}

    {%- set current = run_query("select snapshot_id from " ~ wheel_relation() ~ ".refs where name = 'main'") -%}
    {%- set snapshot = current[0]['snapshot_id'] | int if current | length else none -%}
    {%- set ends -%}
        select
            {% if snapshot is none -%}
            0
            {%- else -%}
            (select coalesce(max(batch), 0) from {{ wheel_relation() }} version as of {{ snapshot }})
            {%- endif %} as decided
            {%- if not is_given %},
            (select coalesce(max(watermark), 0) from {{ ref('ticks') }}) as watermark,
            greatest(
                (select coalesce(max(batch), 0) from {{ ref('events') }}),
                (select coalesce(max(batch), 0) from {{ ref('publish_results') }}),
                (select coalesce(max(batch), 0) from {{ ref('ticks') }})
            ) as upto
            {%- endif %}
    {%- endset -%}
    {%- set row = run_query(ends)[0] -%}
    {%- set decided = row['decided'] | int -%}
    {%- if is_given and decided > given.watermark | int -%}
        {{ exceptions.raise_compiler_error(
            'batches up to ' ~ decided ~ ' are decided already, not up to ' ~ given.watermark ~ ' only: another decide run came first, or this one is repeated. Nothing was written.'
        ) }}
    {%- endif -%}
    {%- set watermark = given.watermark | int if is_given else [decided, row['watermark'] | int] | max -%}
    {%- set upto = given.upto | int if is_given else [row['upto'] | int, watermark] | max -%}
    {{ return({'watermark': watermark, 'upto': upto, 'snapshot': snapshot}) }}

{% endmacro %}
