-- events: every input as it came, with its coordinates. Written by the loop; declared, and created empty, here.
{{ config(
    appends=false,
    partition_by=['truncate(1000, batch)'],
    tblproperties=ledger_properties(),
) }}

{{ typed_empty() }}
