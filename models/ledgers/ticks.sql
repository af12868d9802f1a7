-- ticks: the log of the loop, with the state that a start goes on from. Don't derive it from the other tables: maintenance removes their rows.
-- The loop writes it; dbt creates the empty table.
{{ config(
    appends=false,
    partition_by=['truncate(10000, batch)'],
    tblproperties=ledger_properties(),
) }}

{{ typed_empty() }}
