-- events: every event (report, order, record of a command, gap, start), as it came. The loop writes it; dbt creates the empty table.
{{ config(
    appends=false,
    partition_by=['truncate(1000, batch)'],
    tblproperties=ledger_properties(),
) }}

{{ typed_empty() }}
