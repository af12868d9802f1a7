-- retry_policies_read: each policy, parsed. If a clause can't be read, `not_understood` has it, and the model `rules` stops.
{{ config(materialized='table') }}

{{ read_policies(ref('retry_policies')) }}
