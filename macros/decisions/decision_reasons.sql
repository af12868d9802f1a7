{#- Every reason of a decision, with the decision that it leads to: a list of rows, one for each pair of reason and decision. The SQL reads this
    table; tests/unit/test_decision_reasons.py compares the constants in Python, and docs/lifecycle.md, with it.

    decision: `parked` instead of `dead_letter` if the route has no dead letter topic; `dropped` if the policy says so.
    order: the reason is also the kind of an order, about a delivery that is `waiting`, about a `dead_letter` or a refused report, or about a
        `follower`.
    sends: the decision sends something. succeeds: it is the successor of the delivery that its input answers, which then is never sent again.
    charges: it counts one more failure of processing: `yes`, `no`, or `row`: in its own row only, so that the next report has the same `attempt`.
    refuses: what is refused: an `order`, which changes nothing about its message, or a `report`.
    failure: it is counted as a failure in the metrics (docs/metrics.md).
    redrivable: a report that was refused for this reason may be decided anew, by the rules that apply at that time. -#}
{% macro decision_reasons() -%}
    {%- set table %}
        reason                  | decision    | order       | sends | succeeds | charges | refuses | failure | redrivable
        retriable               | retry       |             | yes   | yes      | yes     |         | yes     |
        quota                   | retry       |             | yes   | yes      | yes     |         | yes     |
        backpressure            | retry       |             | yes   | yes      | no      |         | yes     |
        fenced                  | retry       |             | yes   | yes      | yes     |         | yes     |
        blocking                | retry       |             | yes   | yes      | yes     |         | yes     |
        release                 | retry       | waiting     | yes   | yes      | no      |         |         |
        probe                   | retry       | waiting     | yes   | yes      | no      |         |         |
        send_now                | retry       | waiting     | yes   | yes      | no      |         |         |
        cancel                  | cancelled   | waiting     |       | yes      | no      |         |         |
        follows                 | follows     |             |       | yes      | no      |         |         |
        in_turn                 | retry       | follower    | yes   | yes      | no      |         |         |
        new_row                 | publish     |             | yes   | yes      | no      |         |         |
        redrive                 | redrive     | dead_letter | yes   | yes      | no      |         |         |
        discard                 | discarded   | dead_letter |       |          | no      |         |         |
        restore                 | restored    | dead_letter |       |          | no      |         |         |
        note                    | noted       | dead_letter |       |          | no      |         |         |
        purge                   | purged      | dead_letter |       |          | no      |         |         |
        fatal                   | dead_letter |             | yes   | yes      | yes     |         | yes     |
        fatal                   | parked      |             |       | yes      | yes     |         | yes     |
        poison                  | dead_letter |             | yes   | yes      | yes     |         | yes     |
        poison                  | parked      |             |       | yes      | yes     |         | yes     |
        exhausted               | dead_letter |             | yes   | yes      | yes     |         | yes     |
        exhausted               | parked      |             |       | yes      | yes     |         | yes     |
        exhausted               | dropped     |             |       | yes      | yes     |         | yes     |
        out_of_time             | dead_letter |             | yes   | yes      | yes     |         | yes     |
        out_of_time             | parked      |             |       | yes      | yes     |         | yes     |
        out_of_time             | dropped     |             |       | yes      | yes     |         | yes     |
        send_failed             | dead_letter |             | yes   | yes      | no      |         | yes     |
        send_failed             | parked      |             |       | yes      | no      |         | yes     |
        follows_a_dead_message  | dead_letter | follower    | yes   | yes      | no      |         |         |
        follows_a_dead_message  | parked      | follower    |       | yes      | no      |         |         |
        dead_letter_failed      | dead_letter |             | yes   | yes      | no      |         |         |
        adopted                 | adopted     |             |       | yes      | yes     |         |         |
        orphan                  | orphan      |             | yes   |          | yes     |         | yes     |
        unreadable              | orphan      |             | yes   |          | yes     |         | yes     |
        known_already           | duplicate   |             |       |          | no      |         |         |
        answered_already        | duplicate   |             |       |          | no      |         |         |
        not_waiting             | duplicate   |             |       |          | no      |         |         |
        payload_was_dropped     | refused     |             |       |          | no      | order   | yes     |
        not_discarded           | refused     |             |       |          | no      | order   | yes     |
        wrong_kind_of_delivery  | refused     |             |       |          | no      | order   | yes     |
        no_original_topic       | refused     |             |       |          | no      | order   | yes     |
        no_such_delivery        | refused     |             |       |          | no      | order   | yes     |
        answers_a_dead_letter   | refused     |             |       |          | no      | report  | yes     |
        unknown_source          | refused     |             |       |          | no      | report  | yes     | yes
        not_spoken_for          | refused     |             |       |          | no      | report  | yes     | yes
        no_route                | refused     |             |       |          | row     | report  | yes     | yes
        destination_not_legal   | refused     |             |       |          | row     | report  | yes     | yes
        destination_is_a_source | refused     |             |       |          | row     | report  | yes     | yes
        destination_is_internal | refused     |             |       |          | row     | report  | yes     | yes
        start                   | note        |             |       |          | no      |         |         |
        gap                     | note        |             |       |          | no      |         |         |
        command                 | note        |             |       |          | no      |         |         |
    {%- endset -%}
    {%- set rows = [] -%}
    {%- for line in (table | trim).split('\n') -%}
        {%- do rows.append(line.split('|') | map('trim') | list) -%}
    {%- endfor -%}
    {%- set reasons = [] -%}
    {%- for values in rows[1:] -%}
        {%- set reason = {} -%}
        {%- for name in rows[0] -%}
            {%- do reason.update({name: values[loop.index0]}) -%}
        {%- endfor -%}
        {%- do reasons.append(reason) -%}
    {%- endfor -%}
    {{ return(reasons) }}
{%- endmacro %}
