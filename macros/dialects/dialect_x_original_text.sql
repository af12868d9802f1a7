{#- The headers of Spring Cloud Stream, with numbers as decimal text: a habit of programs without a framework. -#}
{% macro dialect_x_original_text() %}
    {{ return(dict(dialect('spring-cloud-stream'), encodings={})) }}
{% endmacro %}
