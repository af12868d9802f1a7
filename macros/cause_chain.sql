{#- What a report says of its error, and of what caused that, the outermost first: at most 16 of (error_class, message). First what the headers
    name, the wrapper before what it wraps, then what the stack trace adds: Java's `Caused by:`, Python's two sentences, in which the
    innermost comes first. Never empty: an error without a class still has a message. -#}
{% macro cause_chain(wrapper, error_class, message, stack) -%}
    {%- set class_and_message = "struct(left(regexp_extract(line, '^[^:]+', 0), 256) as error_class, "
        ~ "nullif(left(regexp_extract(line, ':[ ]?(.*)', 1), 1024), '') as message)" -%}
    slice(array_distinct(concat(
        case when {{ wrapper }} is not null then array(struct({{ wrapper }} as error_class, {{ message }} as message)) else array() end,
        array(struct({{ error_class }} as error_class, {{ message }} as message)),
        case
            when {{ stack }} is null then array()
            when contains({{ stack }}, 'Traceback (most recent call last):') then transform(
                reverse(regexp_extract_all(
                    {{ stack }},
                    '(?s)Traceback [(]most recent call last[)]:.*?\\n([A-Za-z_][\\w.]*(?::[ ][^\\n]*)?)(?=\\r?\\n|\\z)',
                    1
                )),
                line -> {{ class_and_message }}
            )
            else transform(
                regexp_extract_all(
                    {{ stack }},
                    '(?m)(?:\\A|^Caused by: )([A-Za-z_$][\\w.$]*(?::[ ]?.*)?)$',
                    1
                ),
                line -> {{ class_and_message }}
            )
        end
    )), 1, 16)
{%- endmacro %}
