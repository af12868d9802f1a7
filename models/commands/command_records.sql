-- command_records: each record of the commands topic, parsed. What it contains is data: no part of it gets into a statement.
with

records as (

    select
        *,
        {{ event_input_id('events') }} as input_id,
        from_json(
            {{ utf8_text('value') }},
            -- every field as text: otherwise one value of a wrong type would make the others null. Each is checked and cast below
            'format string, part string, deliveries array<array<string>>, closed string, what string, count string, digest string, '
            || 'who string, reason string, ticket string, rate string, at string, canary string, assume_after string, to string, of string'
        ) as stated
    from {{ ref('events') }} as events
    where kind = 'command'

),

read as (

    select
        ---------- which
        command,
        input_id,
        topic_id,
        partition,
        offset,
        batch,
        recorded_at,
        coalesce(stated.format = '1' and coalesce(stated.closed = 'true', false) <> (stated.part is not null), false) as is_readable,
        coalesce(stated.closed = 'true', false) as is_closing,

        ---------- a part of the list
        {{ whole_number('stated.part', 1000000) }} as part,
        transform(stated.deliveries, d -> struct(
            case when length(get(d, 0)) between 1 and 2048 then get(d, 0) end as delivery_id,
            timestamp_millis({{ whole_number('get(d, 1)', limits('due_ms')) }}) as due_at
        )) as deliveries,
        sha2(array_join(transform(stated.deliveries, d -> concat_ws(' ', get(d, 0), get(d, 1))), '\n'), 256) as digest,

        ---------- what closes it
        stated.what,
        {{ whole_number('stated.count', 1000000) }} as count,
        stated.digest as digest_of_all,
        {{ utf8_cut('trim(stated.who)', 256) }} as who,
        {{ utf8_cut('trim(stated.reason)', 1024) }} as reason,
        {{ utf8_cut('trim(stated.ticket)', 1024) }} as ticket,
        stated.rate as rate_stated,
        case when stated.rate rlike '^[0-9]{1,6}([.][0-9]{1,9})?\\z' then nullif(try_cast(stated.rate as double), 0) end as rate,
        stated.at as at_stated,
        timestamp_millis({{ whole_number('stated.at', limits('moment_ms')) }}) as start_at,
        stated.canary as canary_stated,
        nullif({{ whole_number('stated.canary', 1000000) }}, 0) as canary,
        stated.assume_after as assume_after_stated,
        {{ whole_number('stated.assume_after', 31536000000) }} as assume_after_ms,
        stated.to as to_stated,
        {{ kafka_topic('stated.to') }} as destination,
        stated.of as of_stated,
        case when stated.of rlike '^[0-9a-f-]{36}\\z' then stated.of end as of_command
    from records

)

select
    *,
    coalesce(forall(deliveries, d -> d.delivery_id is not null and d.due_at is not null), false) and part is not null as is_list_readable
from read
