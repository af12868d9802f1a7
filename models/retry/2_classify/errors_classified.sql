-- errors_classified: the kind of each error, the rule that gave it, and what that rule matched. An error that no rule matches is retriable: the worst
-- consequence is a retry that fails again.
with

failures as (

    select * from {{ ref('rules_found') }}

),

judged as (

    select
        *,
        array_position(
            transform(
                candidates,
                c -> coalesce({{ text_matches('causes[c.place].message', 'c.message') }}, c.message is null)
                    and (c.codes is null or coalesce(array_contains(c.codes, error_code), false))
                    and (
                        c.header_place is null
                        or coalesce(
                            case
                                when c.header_value is null then rule_headers[c.header_place - 1] is not null
                                when startswith(c.header_value, '^') then rule_headers[c.header_place - 1] rlike c.header_value
                                else rule_headers[c.header_place - 1] = c.header_value
                            end,
                            false
                        )
                    )
            ),
            true
        ) as turn
    from failures

),

matched as (

    select
        *,
        case when turn > 0 then candidates[turn - 1] end as found
    from judged

),

classified as (

    select
        * except (candidates, found, turn, classes, causes, error_code, rule_headers, stated_kind),
        case
            when sent_error_kind is not null then sent_error_kind
            when input_kind = 'report' then coalesce(stated_kind, found.kind, 'retriable')
            -- the route is the one for the kind of error of the delivery that the order is about
            when input_kind in {{ order_kinds() }} then answered.error_kind
        end as error_kind,
        case
            when sent_error_kind is not null then concat('publish_error_kinds: ', error_class)
            when input_kind = 'report' and stated_kind is not null then 'stated by the report'
            when input_kind = 'report' then coalesce(found.rule, 'default: retriable')
        end as rule,
        case
            when input_kind = 'report' and stated_kind is null and not found.is_default
                then left(concat_ws(
                    ' ',
                    causes[found.place].error_class,
                    case when found.message is not null then concat('message ', causes[found.place].message) end,
                    case when found.codes is not null then concat('code ', error_code) end,
                    case when found.header_place is not null then rtrim(concat('header ', rule_headers[found.header_place - 1])) end
                ), 1024)
        end as matched,
        -- the rules that fit scope and class and come before the one that matched, but ask for another message, code or header
        case
            when input_kind = 'report' and stated_kind is null
                then transform(slice(candidates, 1, coalesce(nullif(turn, 0) - 1, size(candidates))), c -> c.rule)
        end as passed_over
    from matched

)

select * from classified
