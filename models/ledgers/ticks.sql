-- ticks: the log of the loop, and what must not be guessed from data that maintenance may drop. Written by the loop.
{{ config(
    appends=false,
    partition_by=['truncate(10000, batch)'],
    tblproperties=ledger_properties(),
) }}

{{ typed_empty() }}
