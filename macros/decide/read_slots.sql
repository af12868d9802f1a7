{#- Runs the queries of decide_bounds, each with the values of those before it, and returns the values of all slots, as a dictionary of texts. If
    there is nothing to decide, it ends early: `inputs` is 0. -#}
{% macro read_slots() %}
    {%- set slots = {'decide_run': "xxhash64('" ~ invocation_id ~ "')"} -%}
    {%- set wanted = {} -%}
    {%- for name in ['watermark', 'upto', 'rules_hash'] if var(name) is not none -%}
        {%- do slots.update({'given_' ~ name: "'" ~ var(name) ~ "'"}) -%}
    {%- endfor -%}
    {%- for query in decide_bounds() -%}
        {%- if slots.get('inputs') != '0' -%}
            {%- set found = run_query(fill_slots(query, slots)) -%}
            {%- for name in found.column_names if found.rows[0][name] is not none -%}
                {%- do slots.update({name: found.rows[0][name] | string}) -%}
            {%- endfor -%}
            {%- if 'upto' not in wanted and 'upto' in slots -%}
                {%- do wanted.update({'upto': slots.upto}) -%}
            {%- endif -%}
        {%- endif -%}
    {%- endfor -%}
    {%- if var('upto') is none and slots.upto != wanted.upto -%}
        {%- do log('this run decides the batches up to ' ~ slots.upto ~ '; run dbt again for the rest, up to ' ~ wanted.upto ~ ', which are about the same messages', info=true) -%}
    {%- endif -%}
    {{ return(slots) }}
{% endmacro %}
