{#- The headers that a dead letter gets, after the message's own: those of its header profile, which say why it died; `redrive-payload`, if its
    payload was dropped; and the name of the profile, by which the headers are recognised and removed if the record comes back as a report. Null for a
    retry or redrive. -#}
{% macro dead_letter_headers() -%}
    case
        when kind = 'dead_letter' then concat(
            case split_part(coalesce(header_profile, 'dlq'), '+', 1)
                {%- for profile in var('header_profiles') if profile != 'dlq' %}
                when '{{ profile }}' then {{ dead_letter_headers_of(profile) }}
                {%- endfor %}
                else {{ dead_letter_headers_dlq() }}
            end,
            array_compact(array(
                {{ header('redrive-payload', "case when privacy.payload = 'drop' then 'omitted' end") }},
                {{ header('redrive-header-profile', "split_part(coalesce(header_profile, 'dlq'), '+', 1)") }}
            ))
        )
    end
{%- endmacro %}
