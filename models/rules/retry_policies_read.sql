-- retry_policies_read: each policy, taken apart. Whatever can't be read is named; nothing is decided until it can.
{{ config(materialized='table') }}

{{ read_policies(ref('retry_policies')) }}
