{#- The number that bytes stand for: a big-endian signed integer of `width` bytes, from 0 to `greatest`; null for anything else. `conv` reads a
    negative number as a huge unsigned one, which is above `greatest`. -#}
{% macro big_endian(bytes, width, greatest) -%}
    case
        when length({{ bytes }}) = {{ width }} and try_cast(conv(hex({{ bytes }}), 16, 10) as bigint) <= {{ greatest }}
            then try_cast(conv(hex({{ bytes }}), 16, 10) as bigint)
    end
{%- endmacro %}
