-- command_records: each record of the commands topic, read. Whatever it says, it is only a text here: nothing of it is ever run.
with

records as (

    select
        *,
        {{ event_input_id('events') }} as input_id,
        from_json(
            {{ utf8_text('value') }},
            -- everything as text at first: what it may be is checked below
            'format string, part string, deliveries array<array<string>>, closed string, what string, count string, digest string, '
            || 'who string, reason string, ticket string, rate string, at string, canary string, assume_after string, to string, of string'
        ) as said
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
        coalesce(said.format = '1' and coalesce(said.closed = 'true', false) <> (said.part is not null), false) as is_readable,
        coalesce(said.closed = 'true', false) as is_closing,

        ---------- a part of the list
        {{ whole_number('said.part', 1000000) }} as part,
        transform(said.deliveries, d -> struct(
            case when length(get(d, 0)) between 1 and 2048 then get(d, 0) end as delivery_id,
            timestamp_millis({{ whole_number('get(d, 1)', limits('moment_ms')) }}) as due_at
        )) as deliveries,
        sha2(array_join(transform(said.deliveries, d -> concat_ws(' ', get(d, 0), get(d, 1))), '\n'), 256) as digest,

        ---------- what closes it
        said.what,
        {{ whole_number('said.count', 1000000) }} as count,
        said.digest as digest_of_all,
        {{ utf8_cut('trim(said.who)', 256) }} as who,
        {{ utf8_cut('trim(said.reason)', 1024) }} as reason,
        {{ utf8_cut('trim(said.ticket)', 1024) }} as ticket,
        said.rate as rate_said,
        case when said.rate rlike '^[0-9]{1,6}([.][0-9]{1,9})?\\z' then nullif(try_cast(said.rate as double), 0) end as rate,
        said.at as at_said,
        timestamp_millis({{ whole_number('said.at', limits('moment_ms')) }}) as start_at,
        said.canary as canary_said,
        nullif({{ whole_number('said.canary', 1000000) }}, 0) as canary,
        said.assume_after as assume_after_said,
        {{ whole_number('said.assume_after', 31536000000) }} as assume_after_ms,
        said.to as to_said,
        {{ kafka_topic('said.to') }} as destination,
        said.of as of_said,
        case when said.of rlike '^[0-9a-f-]{36}\\z' then said.of end as of_command
    from records

)

select
    *,
    coalesce(forall(deliveries, d -> d.delivery_id is not null and d.due_at is not null), false) and part is not null as is_list_readable
from read
