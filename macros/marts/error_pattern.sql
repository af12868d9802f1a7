{#- What errors with the same cause have in common: the top frame of the stack; without a stack, the message without what differs each time. In a Java
    stack, the frame is looked for after the `Caused by:` of the error's class; frames of the runtime's own library (Java's, Node's) count only if
    there is no other. Python prints the top frame last. Line numbers and the numbers of generated classes are removed, as they change with each
    release. -#}
{% macro error_pattern(error_class, message, stack) -%}
    {%- set python -%} File "[^"\\n]*", line [0-9]+, in [^\\n]* {%- endset -%}
    {#- blanks, but not line breaks: else the search would start again at each of many empty lines, and go through all that follow -#}
    {%- set frame -%} \\n[ \\t]++at (?:async |new )? {%- endset -%}
    {%- set runtime -%} (?!(?:[^\\s(]*/)?(?:java|javax|jdk|sun|com[.]sun|node:internal)[.:/]) {%- endset -%}
    {%- set own_part = "case when contains(" ~ stack ~ ", concat('Caused by: ', " ~ error_class ~ ")) then substring_index("
        ~ stack ~ ", concat('Caused by: ', " ~ error_class ~ "), -1) else " ~ stack ~ " end" -%}
    coalesce(
        regexp_replace(
            try_element_at(regexp_extract_all({{ stack }}, '{{ python }}', 0), -1),
            '^File "(?:[^"]*[/\\\\])?([^"/\\\\]+)", line [0-9]+, in (.*)$',
            '$1 in $2'
        ),
        regexp_replace(
            regexp_replace(
                coalesce(
                    nullif(regexp_extract({{ own_part }}, '{{ frame }}{{ runtime }}([^\\s(]+) ?[(]', 1), ''),
                    nullif(regexp_extract({{ own_part }}, '{{ frame }}([^\\s(]+) ?[(]', 1), '')
                ),
                '^.*/',
                ''
            ),
            '(?<=[$-])(?=[a-f]*[0-9])[0-9a-f]+|(?<=Accessor|Proxy)[0-9]+',
            '#'
        ),
        {{ message_pattern(message) }},
        '-'
    )
{%- endmacro %}
