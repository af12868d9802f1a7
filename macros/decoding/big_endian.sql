{#- A big-endian signed integer of `width` bytes that isn't negative, up to `greatest`; null for anything else (a wrong length, a negative
    number, which sets the first bit and reads as a huge one). -#}
{% macro big_endian(bytes, width, greatest) -%}
    case
        when length({{ bytes }}) = {{ width }} and try_cast(conv(hex({{ bytes }}), 16, 10) as bigint) <= {{ greatest }}
            then try_cast(conv(hex({{ bytes }}), 16, 10) as bigint)
    end
{%- endmacro %}
