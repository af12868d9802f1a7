-- retry_policies_read: each policy, parsed. If a clause can't be read, it is in `not_understood`, and the model `rules` stops.
{{ config(materialized='table') }}

{{ read_policies(ref('retry_policies')) }}
