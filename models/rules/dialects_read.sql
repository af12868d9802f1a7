-- dialects_read: each dialect: those of the project, described by macros, and those of the seed `dialects`.
{%- set candidate = 'struct<header: string, is_first: boolean, encoding: string, path: string>' %}

with

described as (

    {%- for name in var('dialects') %}
    {%- set says = dialect(name) %}
    select
        '{{ name }}' as dialect,
        cast(array({% for header in says.owns %}{{ sql_text(header) }}{{ ', ' if not loop.last }}{% endfor %}) as array<string>) as owns,
        cast(array(
            {%- for names in says.recognised_by %}
            array({% for header in names %}{{ sql_text(header) }}{{ ', ' if not loop.last }}{% endfor %}){{ ',' if not loop.last }}
            {%- endfor %}
        ) as array<array<string>>) as recognised_by,
        {{ says.attempts_ahead or 0 }} as attempts_ahead,
        {{ says.refers_when_empty or false }} as refers_when_empty,
        {{ says.copies_timestamp or false }} as copies_timestamp,
        struct(
            {%- for field in var('dialect_fields') %}
            cast(array(
                {%- for header in says.fields.get(field, []) %}
                struct(
                    {{ sql_text(header) }} as header,
                    {{ 'true' if field in (says.read_first or []) else 'false' }} as is_first,
                    '{{ (says.encodings or {}).get(field, 'text') }}' as encoding,
                    cast({{ sql_text(says.paths[field]) if field in (says.paths or {}) else 'null' }} as string) as path
                ){{ ',' if not loop.last }}
                {%- endfor %}
            ) as array<{{ candidate }}>) as {{ field }}{{ ',' if not loop.last }}
            {%- endfor %}
        ) as fields
    {{ 'union all' if not loop.last }}
    {%- endfor %}

),

added as (

    select
        dialect,
        collect_list(header) filter (where field = 'owns') as owns,
        collect_list(filter(split(header, ' +'), n -> n <> '')) filter (where field = 'recognised_by') as recognised_by,
        0 as attempts_ahead,
        false as refers_when_empty,
        false as copies_timestamp,
        struct(
            {%- for field in var('dialect_fields') %}
            cast(transform(
                array_sort(collect_list(struct(
                    preference,
                    header,
                    occurrence = 'first' as is_first,
                    encoding,
                    nullif(path, '') as path
                )) filter (where field = '{{ field }}')),
                c -> struct(c.header, c.is_first, c.encoding, c.path)
            ) as array<{{ candidate }}>) as {{ field }}{{ ',' if not loop.last }}
            {%- endfor %}
        ) as fields
    from {{ ref('dialects') }}
    group by dialect

),

gathered as (

    select * from described
    union all
    select * from added

)

select * from gathered
