{#- The text of a condition on a time, in brackets: within one of the hours, as literals. `true` if there are none, or more than var
    max_bounded_spans (`hours` may be null then): in that case the range of due times is the only bound.

    Without it, a single report with a made-up due time would make the decide run read the wheel from that time on.

    hours: an array of the beginnings of hours, in seconds since 1970. column (not SQL): its name. -#}
{% macro condition_of_hours(hours, column) -%}
    case
        when size({{ hours }}) between 1 and {{ var('max_bounded_spans') }}
            then concat('(', array_join(transform(array_sort({{ hours }}), h -> concat(
                '({{ column }} >= timestamp_seconds(', h, ') and {{ column }} < timestamp_seconds(', h + 3600, '))'
            )), ' or '), ')')
        else 'true'
    end
{%- endmacro %}
