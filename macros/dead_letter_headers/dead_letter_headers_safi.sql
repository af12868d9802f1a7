{#- The profile `safi`: one header with a JSON object. It has the message's own headers, in their order, with duplicates; a value that is not UTF-8 is
    in base64, without the line breaks that Spark makes, and with "encoding": "base64". A mandatory field that is unknown is an empty text. -#}
{% macro dead_letter_headers_safi() -%}
    array(struct(
        'x-dlq-metadata' as key,
        cast(to_json(struct(
            transform(coalesce(headers, array()), h -> case
                when h.value is null or {{ utf8_text('h.value') }} is not null
                    then map('key', h.key, 'value', {{ utf8_text('h.value') }})
                else map('key', h.key, 'value', replace(base64(h.value), '\r\n', ''), 'encoding', 'base64')
            end) as original_headers,
            coalesce(original_topic, '') as original_topic,
            coalesce(consumer_group, '') as original_consumer_group,
            coalesce({{ iso_time('original_timestamp') }}, '') as original_timestamp,
            concat_ws('\n',
                concat_ws(': ', error_class, {{ dead_letter_reason() }}),
                {{ dead_letter_stack() }}
            ) as error_info
        )) as binary) as value
    ))
{%- endmacro %}
