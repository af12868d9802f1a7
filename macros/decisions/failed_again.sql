{#- Whether a decision says that a message that was sent has failed again: its failure was reported, or Kafka refused the send for good. Python has
    the same for canaries: orchestration/loop/canaries.py. A cancellation is no failure, nor is a report that the message was not tried.

    decision: alias of decisions in the query, of the same life cycle, and later than the one that sent the message. -#}
{% macro failed_again(decision) -%}
    ({{ decision }}.decision not in ('duplicate', 'follows') and ({{ decision }}.report_topic is not null or {{ decision }}.decision in {{ decisions_where(reason='send_failed') }}))
{%- endmacro %}
