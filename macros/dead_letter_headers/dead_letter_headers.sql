{#- The headers that a dead letter gets, after the message's own: those of its header profile, which say why it died; then the name of the profile, by
    which the headers are recognised and removed if the record comes back as a report. Null for a retry. -#}
{% macro dead_letter_headers() -%}
    case
        when kind = 'dead_letter' then concat(
            case split_part(coalesce(header_profile, 'dlq'), '+', 1)
                when 'safi' then {{ dead_letter_headers_safi() }}
                when 'spring' then {{ dead_letter_headers_spring() }}
                when 'connect' then {{ dead_letter_headers_connect() }}
                else {{ dead_letter_headers_dlq() }}
            end,
            array_compact(array(
                {{ header('redrive-payload', "case when privacy.payload = 'drop' then 'omitted' end") }},
                {{ header('redrive-header-profile', "split_part(coalesce(header_profile, 'dlq'), '+', 1)") }}
            ))
        )
    end
{%- endmacro %}
