{#- The headers that a dead letter gets, after the message's own: why it died, as its profile writes it; then which profile that is, so that
    they are known for ours should the record come back. Null for what is no dead letter. -#}
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
