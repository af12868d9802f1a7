{#- Reads which batches are to be decided, as a dictionary of watermark, upto and snapshot: given by the loop, which knows them, or the ends of
    the tables, which Iceberg answers from metadata. Appends are strictly one after another, so everything up to `upto` is complete.

    No batch is decided twice, as the rules may have changed in between, and a message would have two decisions. So the snapshot of the wheel
    comes first, and what is decided is read from that very snapshot: what other decide runs commit after it is a conflict (decide_guard).

    As the first thing that a decide run asks, it also sees to it that what follows is `interpreted`: `deliveries` ends that. -#}
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
