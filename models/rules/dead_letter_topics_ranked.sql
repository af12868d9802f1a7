-- dead_letter_topics_ranked: the dead letter topics of error classes in one row, the most specific first: the first that matches counts.
with

topics as (

    select
        {{ regular_expression('error_class') }} as error_class,
        {{ regular_expression('topic') }} as topic,
        consumer_group,
        dead_letter_topic
    from {{ ref('dead_letter_topics') }}

),

ancestors as (

    select * from {{ ref('error_class_ancestors') }}

),

ranked as (

    {{ ranked_by_class('topics', 'ancestors', ['dead_letter_topic']) }}

),

gathered as (

    select coalesce(sort_array(collect_list(struct(*))), array()) as dead_letter_topics
    from ranked

)

select * from gathered
