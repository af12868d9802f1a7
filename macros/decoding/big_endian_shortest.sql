{#- A whole number, from 0, as a big-endian signed integer of as few bytes as it needs (as Java's BigInteger writes one); null for null. -#}
{% macro big_endian_shortest(number) -%}
    unhex(case
        when length(hex({{ number }})) % 2 = 1 then concat('0', hex({{ number }}))
        when hex({{ number }}) >= '8' then concat('00', hex({{ number }}))
        else hex({{ number }})
    end)
{%- endmacro %}
