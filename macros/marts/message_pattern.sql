{#- The message of an error with quoted text, UUIDs, hexadecimal ids and numbers replaced by placeholders: one line of at most 200 characters. An
    apostrophe inside a word doesn't begin a quotation. A quotation contains no opening quote: otherwise the text
    would be searched to its end from each of many unclosed quotes. -#}
{% macro message_pattern(message) -%}
    {%- set before -%} (?<![\\p{L}\\p{N}]) {%- endset -%}
    {%- set after -%} (?![\\p{L}\\p{N}]) {%- endset -%}
    {%- set quoted -%}
    \\x22[^\\x22\\n]*\\x22|{{ before }}\\x27[^\\x27\\n]*\\x27{{ after }}|`[^`\\n]*`|“[^“”\\n]*”|„[^„“”\\n]*[“”]|«[^«»\\n]*»|‘[^‘’\\n]*’
    {%- endset -%}
    {%- set uuid -%} [0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12} {%- endset -%}
    {%- set hexadecimal -%} (?:0[xX][0-9a-fA-F]+|(?=[0-9]*[a-fA-F])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}) {%- endset -%}
    {%- set number -%} \\p{Nd}(?:[\\p{Nd}.,:]*\\p{Nd})? {%- endset -%}
    {%- set blank -%} [\\s\\p{C}]+ {%- endset -%}
    {%- set ns = namespace(text=message) -%}
    {%- for pattern, instead in [
        (quoted, '<text>'), (uuid, '<id>'), (before ~ hexadecimal ~ after, '<id>'), (number, '<number>'), (blank, ' ')
    ] -%}
        {%- set ns.text = 'regexp_replace(' ~ ns.text ~ ", '" ~ pattern ~ "', '" ~ instead ~ "')" -%}
    {%- endfor -%}
    nullif(left(trim({{ ns.text }}), 200), '')
{%- endmacro %}
