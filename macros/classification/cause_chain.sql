{#- The chain of causes of a report's error, the outermost first: an array of at most 16 structs (error_class, message). First the errors that headers
    name, the wrapper before the wrapped one; then those in the stack trace: after `Caused by:` in Java (KafkaJS indents that by two blanks), or in
    Python's tracebacks, of which the innermost comes first. Never empty: an error without a class has an element, too.

    A stack trace is text that anybody may have written, up to 64 kB. So that no text makes a match slow, each expression is anchored to a line, and
    reads no text outside its line (or part of a traceback) a second time. In a traceback the first line that is not indented names the error. At most
    64 errors of a stack trace are read, as array_distinct compares each with each. -#}
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
