{#- Whether only the hash of a sequence's id may be kept: the privacy of the route for some kind of error keeps no payload, or denies the header that
    has the id. It is the same for all kinds: a failure of one kind and what follows it must be of one sequence.

    place: where messages carry the id, as for sequence_id. routes: an array of the routes that match topic and group, as routes_of returns it. -#}
{% macro is_sequence_hidden(place, routes) -%}
    coalesce({{ place }} <> '' and exists(
        transform(array('{{ var('error_kinds') | join("', '") }}'), kind -> {{ route_for_kind(routes, 'kind') }}.privacy),
        privacy -> not {{ privacy_keeps('payload', 'privacy') }} or {{ is_denied_header(place, 'privacy') }}
    ), false)
{%- endmacro %}
