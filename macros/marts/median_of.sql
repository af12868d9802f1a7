{#- The median of `died` over `count` hours, as a double; hours without a row count as 0.

    hours: those that have a row, array<struct<died: bigint, ...>>. count (a number): how many hours there are. -#}
{% macro median_of(hours, count) -%}
    {%- set sorted = 'array_sort(concat(array_repeat(0L, ' ~ count ~ ' - size(' ~ hours ~ ')), transform(' ~ hours ~ ', h -> h.died)))' -%}
    (try_element_at({{ sorted }}, {{ (count + 1) // 2 }}) + try_element_at({{ sorted }}, {{ count // 2 + 1 }})) / 2
{%- endmacro %}
