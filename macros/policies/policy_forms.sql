{#- The forms that a policy may have. `takes`: the clauses of the form; `by_place`: those that are given by position, without a name; `bare_ms`: a
    duration is a number without a unit, and 1 stands for so many milliseconds; `bare`: the form takes none of policy_options. -#}
{% macro policy_forms() -%}
    {{ return({
        'exponential': {'takes': ['initial', 'factor', 'max']},
        'linear': {'takes': ['initial', 'increment', 'max']},
        'fixed': {'takes': ['step']},
        'none': {'takes': ['on_exhausted'], 'bare': true},
        'exponentialretrypolicy': {
            'takes': ['initial', 'max', 'factor'], 'by_place': ['initial', 'max', 'factor'], 'bare_ms': 1000,
        },
        'limitedexponentialretrypolicy': {
            'takes': ['initial', 'max', 'factor', 'retries'], 'by_place': ['initial', 'max', 'factor', 'retries'], 'bare_ms': 1000,
        },
        'fixeddelayretrypolicy': {'takes': ['step'], 'bare_ms': 1},
    }) }}
{%- endmacro %}
