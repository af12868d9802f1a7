{#- The forms that a policy may have: the clauses that each takes, those that are given by their place, and what a bare number of a duration
    counts in, in milliseconds. A `bare` form takes no further options. -#}
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
