{#- The number that a varint of Protocol Buffers stands for: seven bits in each byte, the lowest first. Null if it has more than 56 bits.

    digits: its bytes, as hexadecimal digits. -#}
{% macro varint_number(digits) -%}
    case
        when length({{ digits }}) <= 16 then aggregate(
            sequence(1, cast(length({{ digits }}) / 2 as int)),
            cast(0 as bigint),
            (sum, i) -> sum + shiftleft(cast(conv(substring({{ digits }}, 2 * i - 1, 2), 16, 10) as bigint) & 127, 7 * (i - 1))
        )
    end
{%- endmacro %}
