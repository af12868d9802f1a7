{#- A condition on a batch: one that this run decides. The bounds become literals, so that Iceberg skips files of other batches. -#}
{% macro in_this_run(batch) -%}
    {{ batch }} > {{ slot('watermark') }} and {{ batch }} <= {{ slot('upto') }}
{%- endmacro %}
