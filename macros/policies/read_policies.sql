{#- A query that parses policies: of a relation with `policy` (the name) and `definition` (the text) it makes one row per policy, with a column for
    each setting. `not_understood` is the first clause that can't be read, or null. docs/policies.md has the grammar; a policy is one of

      exponential(initial=1s, factor=2, max=60s)      linear(initial=1s, increment=1s, max=60s)      fixed(5s x 3, 15s x 5)      none
      ExponentialRetryPolicy(1, 60, 2)      LimitedExponentialRetryPolicy(1, 60, 2, 120)      FixedDelayRetryPolicy(5000x3, 15000x5)

    The last three are notations of other libraries: (initial in seconds, max in seconds, factor, retries), and (milliseconds x retries, ...). -#}
{% macro read_policies(relation) -%}
    {%- set forms = var('policy_forms') -%}
    with

    texts as (

        -- blanks are ignored everywhere
        select
            *,
            lower(regexp_replace(regexp_extract(definition, '^([^()]*)([(][^()]*[)])?\\s*\\z', 1), '\\s+', '')) as form,
            regexp_extract(definition, '[(]([^()]*)[)]\\s*\\z', 1) as arguments
        from {{ relation }}

    ),

    clauses as (

        select
            policy,
            definition,
            form,
            place,
            regexp_replace(clause, '^\\s+|\\s+\\z', '') as clause,
            lower(regexp_replace(clause, '\\s+', '')) as text
        from texts
        lateral view outer posexplode(case when arguments rlike '^\\s*\\z' then array() else split(arguments, ',') end) as place, clause

    ),

    named as (

        -- clauses that are given by position get their names
        select
            *,
            text <> '' and not contains(text, '=') as is_by_place,
            case
                when contains(text, '=') then substring_index(text, '=', 1)
                when coalesce(text, '') = '' then null
                {%- for form, says in forms.items() %}
                {%- if says.by_place %}
                when form = '{{ form }}' then try_element_at(array('{{ says.by_place | join("', '") }}'), place + 1)
                {%- elif 'step' in says.takes %}
                when form = '{{ form }}' then 'step'
                {%- endif %}
                {%- endfor %}
            end as name,
            case when contains(text, '=') then substring(text, length(substring_index(text, '=', 1)) + 2) else text end as value
        from clauses

    ),

    split as (

        select
            *,
            -- `5s` of `5s x 3`
            regexp_extract(value, '^([^x]*)(x[0-9]*)?\\z', 1) as number_text
        from named

    ),

    valued as (

        select
            *,
            case
                {%- for form, says in forms.items() if says.bare_ms %}
                when form = '{{ form }}' and is_by_place then {{ duration_ms('number_text', says.bare_ms) }}
                {%- endfor %}
                else {{ duration_ms('number_text') }}
            end as duration,
            case when value rlike '^[0-9]{1,4}([.][0-9]{1,6})?\\z' then try_cast(value as double) end as number,
            case when value rlike '^[0-9]{1,9}\\z' then try_cast(value as int) end as whole,
            case when value rlike 'x[0-9]{1,9}\\z' then try_cast(regexp_extract(value, 'x([0-9]+)\\z', 1) as int) end as times,
            count(*) over (partition by policy, name order by place rows unbounded preceding) as turn,
            max(case when name = 'step' then place end) over (partition by policy) as last_step,
            max(case when contains(text, '=') then 1 else 0 end) over (partition by policy order by place rows unbounded preceding) as named_before
        from split

    ),

    judged as (

        select
            *,
            case form
                {%- for form, says in forms.items() %}
                when '{{ form }}' then
                    name in ('{{ (says.takes + ([] if says.bare else var('policy_options'))) | join("', '") }}')
                    and (name = 'step' or turn = 1)
                    {%- if says.by_place %}
                    and (name not in ('{{ says.by_place | join("', '") }}') or is_by_place)
                    {%- endif %}
                    and (name <> 'step' or is_by_place)
                    {%- if says.bare_ms %}
                    and (not is_by_place or named_before = 0)
                    {%- elif 'step' not in says.takes %}
                    and not is_by_place
                    {%- endif %}
                    and case
                        when name in ('initial', 'max', 'increment', 'max_elapsed', 'backpressure_delay') then duration is not null and not contains(value, 'x')
                        when name in ('factor', 'quota_multiplier') then number between 1 and 1000
                        when name = 'jitter' then number < 1
                        when name in ('attempts', 'retries') then whole >= 0
                        when name = 'on_exhausted' then value in ('dead_letter', 'drop')
                        when name = 'step'
                            then duration is not null and (times >= 1 or (not contains(value, 'x') and {{ 'false' if says.bare_ms else 'place = last_step' }}))
                    end
                {%- endfor %}
            end as is_understood
        from valued

    ),

    gathered as (

        select
            policy,
            any_value(definition) as definition,
            any_value(form) as form,
            min_by(clause, place) filter (where place is not null and not coalesce(is_understood, false)) as bad_clause,
            count_if(is_by_place) as by_place,
            max(duration) filter (where name = 'initial') as initial_ms,
            max(number) filter (where name = 'factor') as factor,
            max(duration) filter (where name = 'increment') as increment_ms,
            max(duration) filter (where name = 'max') as max_ms,
            max(number) filter (where name = 'jitter') as jitter,
            max(whole) filter (where name = 'attempts') as attempts,
            max(whole) filter (where name = 'retries') as retries,
            max(duration) filter (where name = 'max_elapsed') as max_elapsed_ms,
            max(value) filter (where name = 'on_exhausted') as on_exhausted,
            max(number) filter (where name = 'quota_multiplier') as quota_multiplier,
            max(duration) filter (where name = 'backpressure_delay') as backpressure_ms,
            array_sort(collect_list(struct(place, times, cast(duration as bigint) as delay_ms)) filter (where name = 'step')) as steps
        from judged
        group by policy

    )

    select
        policy,
        definition,
        case form
            {%- for form, says in forms.items() %}
            when '{{ form }}' then
                {%- set needs = says.by_place | length if says.by_place else 1 if 'step' in says.takes else 0 %}
                case when by_place < {{ needs }} then definition else bad_clause end
            {%- endfor %}
            else definition
        end as not_understood,
        cast(coalesce(initial_ms, 1000) as bigint) as initial_ms,
        case when form = 'linear' then 1d else coalesce(factor, 2d) end as factor,
        cast(case when form = 'linear' then coalesce(increment_ms, 1000) else 0 end as bigint) as increment_ms,
        cast(coalesce(max_ms, 60000) as bigint) as max_ms,
        coalesce(jitter, case when form in ('exponential', 'linear') then 0.3d else 0d end) as jitter,
        case
            when size(steps) > 0 then transform(steps, (step, place) -> struct(
                cast(aggregate(slice(steps, 1, place + 1), 0L, (sum, s) -> sum + coalesce(s.times, 2147483647)) as bigint) as upto,
                step.delay_ms as delay_ms
            ))
        end as steps,
        cast(least(
            -- the first attempt is made before redrive is asked: attempts=0 means the same as attempts=1
            case when attempts < 1 then 1 else attempts end,
            retries + 1L,
            case when form = 'none' then 1 end,
            case
                when size(steps) > 0 and not exists(steps, s -> s.times is null)
                    then 1 + aggregate(steps, 0L, (sum, s) -> sum + s.times)
            end
        ) as bigint) as max_attempts,
        cast(max_elapsed_ms as bigint) as max_elapsed_ms,
        -- the clause that means something after a failure of processing, but not after a failed send
        case
            when max_elapsed_ms is not null then 'max_elapsed'
            when on_exhausted = 'drop' then 'on_exhausted=drop'
        end as processing_only,
        coalesce(on_exhausted, 'dead_letter') as on_exhausted,
        coalesce(quota_multiplier, 5d) as quota_multiplier,
        cast(coalesce(backpressure_ms, 1000) as bigint) as backpressure_ms
    from gathered
{%- endmacro %}
