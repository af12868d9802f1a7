{#- The fields of a Protocol Buffers message: an array of structs, `number` and `bytes`. The bytes of a number are its decimal digits, as it is written:
    without a sign. Fields after the sixteenth, and those after a field that can't be read, are left out; so are numbers of fields above 15.

    The message is read as hexadecimal digits: `rest` is what is left of them. -#}
{% macro protobuf_fields(bytes) -%}
    {%- set one = '[0-7][0-9A-F]' -%}
    {%- set varint = '^((?:[89A-F][0-9A-F])*' ~ one ~ ')' -%}
    aggregate(
        sequence(1, 16),
        struct(
            hex({{ bytes }}) as rest,
            cast(array() as array<struct<number: int, bytes: binary>>) as fields
        ),
        (read, place) -> aggregate(
            -- the tag: a number of a field, and the wire type, 0 for a varint, 2 for bytes with their length in front
            array(struct(
                cast(conv(left(read.rest, 2), 16, 10) as int) as tag,
                regexp_extract(substring(read.rest, 3), '{{ varint }}', 1) as varint,
                read
            )),
            read,
            (unchanged, t) -> case
                when t.varint is null or length(t.varint) not between 2 and 20 or t.tag is null or t.tag >= 128 or t.tag % 8 not in (0, 2)
                    then struct('' as rest, t.read.fields as fields)
                when t.tag % 8 = 0
                    then struct(
                        substring(t.read.rest, 3 + length(t.varint)) as rest,
                        concat(t.read.fields, array(struct(
                            cast(t.tag div 8 as int) as number, cast(cast({{ varint_number('t.varint') }} as string) as binary) as bytes
                        ))) as fields
                    )
                when coalesce({{ varint_number('t.varint') }} * 2 > length(t.read.rest), true) then struct('' as rest, t.read.fields as fields)
                else struct(
                    substring(t.read.rest, cast(3 + length(t.varint) + 2 * {{ varint_number('t.varint') }} as int)) as rest,
                    concat(t.read.fields, array(struct(
                        cast(t.tag div 8 as int) as number,
                        unhex(substring(t.read.rest, 3 + length(t.varint), cast(2 * {{ varint_number('t.varint') }} as int))) as bytes
                    ))) as fields
                )
            end
        )
    ).fields
{%- endmacro %}
