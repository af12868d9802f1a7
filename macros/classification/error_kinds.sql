{#- The kinds of errors, each with what others call it. In this order one kind goes before another where two rules are equally specific.
    NRE, SLE, SNBE and SBE: not retryable, stateless, stateful not blocking, stateful blocking retryable exceptions. -#}
{% macro error_kinds() -%}
    {{ return({
        'fatal': ['nre', 'non-transient', 'not recoverable', 'unrecoverable'],
        'poison': [],
        'retriable': ['sle', 'snbe', 'transient', 'recoverable'],
        'quota': [],
        'backpressure': [],
        'fenced': [],
        'blocking': ['sbe'],
    }) }}
{%- endmacro %}
