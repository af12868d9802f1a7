-- inputs_gathered: the inputs of this decide run.
with

inputs as (

    select * from {{ slot('inputs_of_this_run', ref('stg_inputs')) }}

)

select {{ in_few_partitions() }} * from inputs
where {{ in_this_run('batch') }}
