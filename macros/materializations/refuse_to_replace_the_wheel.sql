{#- Stops with an error if `deliveries` doesn't exist but `events` has rows other than starts: if the catalog failed to list the table once, it would
    be replaced by an empty one. -#}
{% macro refuse_to_replace_the_wheel() %}
    {%- set events = run_query('select 1 as found from ' ~ ref('events') ~ " where kind <> 'start' limit 1") -%}
    {%- if events | length > 0 -%}
        {%- do exceptions.raise_compiler_error(
            'deliveries is missing while events has rows: it records decisions that cannot be made again. '
            ~ 'If the catalog only failed to list it, run again; if it was dropped, restore it from a snapshot.') -%}
    {%- endif -%}
{% endmacro %}
