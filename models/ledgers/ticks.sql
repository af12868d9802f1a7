-- ticks: the log of the loop, with the state that a start goes on from: it can't be derived from the other tables, of which maintenance removes rows.
-- The loop writes it; dbt creates the empty table.
{{ config(
    appends=false,
    partition_by=['truncate(10000, batch)'],
    tblproperties=ledger_properties(),
) }}

{{ typed_empty() }}
