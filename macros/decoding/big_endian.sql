{#- The number that bytes stand for, big-endian, from 0 to `greatest`; null for anything else. `conv` reads a negative number as a huge unsigned one,
    which is above `greatest`, unless it has few bytes: so the first bit of `shortest` must be 0.

    encoding: `int32` (4 bytes), `int64` (8 bytes), `byte_or_int32` (1 byte without a sign, or 4), or `shortest` (as few bytes as the number needs). -#}
{% macro big_endian(bytes, encoding, greatest) -%}
    case
        when
            (
                ({{ encoding }} = 'int32' and length({{ bytes }}) = 4)
                or ({{ encoding }} = 'int64' and length({{ bytes }}) = 8)
                or ({{ encoding }} = 'byte_or_int32' and length({{ bytes }}) in (1, 4))
                or ({{ encoding }} = 'shortest' and length({{ bytes }}) between 1 and 8 and hex(substring({{ bytes }}, 1, 1)) < '80')
            )
            and try_cast(conv(hex({{ bytes }}), 16, 10) as bigint) <= {{ greatest }}
            then try_cast(conv(hex({{ bytes }}), 16, 10) as bigint)
    end
{%- endmacro %}
