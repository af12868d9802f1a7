{#- What a report says of its error, and of what caused that, the outermost first: at most 16 of (error_class, message). First what the headers
    name, the wrapper before what it wraps, then what the stack trace adds: Java's `Caused by:` (which KafkaJS indents by two blanks), Python's
    two sentences, in which the innermost comes first. Never empty: an error without a class still has a message.

    A stack trace is foreign text, of 64 kB: each expression begins at a line, and none looks beyond its own line, or its own part of the
    text, again. Of a traceback the first line that is not indented names the error. Of what a stack trace names the outermost 64 are looked at, as array_distinct compares each with each. -#}
{% macro cause_chain(wrapper, error_class, message, stack) -%}
    {%- set class_and_message = "struct(left(regexp_extract(line, '^[^:]+', 0), 256) as error_class, "
        ~ "nullif(left(regexp_extract(line, ':[ ]?(.*)', 1), 1024), '') as message)" -%}
    {%- set traceback = 'Traceback (most recent call last):' -%}
    slice(array_distinct(concat(
        case when {{ wrapper }} is not null then array(struct({{ wrapper }} as error_class, {{ message }} as message)) else array() end,
        array(struct({{ error_class }} as error_class, {{ message }} as message)),
        case
            when {{ stack }} is null then array()
            when contains({{ stack }}, '{{ traceback }}') then transform(
                slice(
                    filter(
                        transform(
                            reverse(slice(split({{ stack }}, '\\Q{{ traceback }}\\E'), 2, length({{ stack }}))),
                            part -> regexp_extract(part, '\\n([A-Za-z_][\\w.]*+(?::[ ][^\\n]*+)?+)(?=\\r?\\n|\\z)', 1)
                        ),
                        line -> line <> ''
                    ),
                    1, 64
                ),
                line -> {{ class_and_message }}
            )
            else transform(
                slice(
                    regexp_extract_all(
                        {{ stack }},
                        '(?m)(?:\\A|^(?:[ ]{2})?Caused by: )([A-Za-z_$][\\w.$]*+(?::[ ]?.*+)?+)$',
                        1
                    ),
                    1, 64
                ),
                line -> {{ class_and_message }}
            )
        end
    )), 1, 16)
{%- endmacro %}
