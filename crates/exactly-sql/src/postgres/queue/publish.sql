create or replace function {publish_ordered}(
    order_key text,
    event_id text,
    event_type text,
    source text,
    data json,
    happened_at timestamptz default null
) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set standard_conforming_strings = on
as $exactly$
declare
    KIND constant text := 'exactly.event';
    DATA_MAX constant integer := 524288;
    -- The namespace of tasks.
    NAMESPACE constant bytea := '\x5d0f6c1e3a344b0b9e574c1f7a0ec0de';
    WORD constant bigint := 4294967295;
    message bytea;
    w bigint[];
    a bigint; b bigint; c bigint; d bigint; e bigint; f bigint; k bigint; t bigint;
    h bigint[] := array[1732584193, 4023233417, 2562383102, 271733878, 3285377520]::bigint[];
    digest bytea := '';
    task uuid;
    place text := KIND;
    stored bytea;
    before bytea;
    at timestamptz;
begin
    if octet_length(order_key) not between 1 and 128 or order_key ~ '[\u0001-\u001f\u007f-\u009f]' then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'publish event: order_key is not 1 to 128 bytes without control characters',
            hint = 'Pass what the event is in order with, or null if it is with nothing.';
    end if;
    if event_id is null or event_id !~ '^[!-\-/-~]{1,128}$' then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'publish event: event_id is not 1 to 128 visible ASCII characters without a dot',
            hint = 'Use a UUID, or what the event is about.';
    end if;
    if event_type is null or octet_length(event_type) > 128 or event_type !~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$' then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'publish event: event_type is not made of words with dots between them',
            hint = 'As in invoice.paid: a-z, 0-9, _ and -, 128 bytes at most.';
    end if;
    if source is null or octet_length(source) not between 1 and 128 or source ~ '[\u0001-\u001f\u007f-\u009f]' then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'publish event: source is not 1 to 128 bytes without control characters',
            hint = 'Pass the name that consumers know your service by.';
    end if;
    if data is null or octet_length(convert_to(data::text, 'UTF8')) > DATA_MAX then
        raise exception using errcode = 'invalid_parameter_value',
            message = format('publish event: data is null or has more than %s bytes', DATA_MAX),
            hint = 'Put what is larger elsewhere, and its address into the event.';
    end if;
    if happened_at is not null and happened_at not between '1970-01-01 00:00Z' and '9999-12-31 00:00Z' then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'publish event: happened_at is not a time from 1970 to 9999',
            hint = 'Leave it out if the event happens now.';
    end if;

    -- The task's id is a UUID of version 5, for which there is a SHA-1, which PostgreSQL has not by itself.
    message := NAMESPACE || convert_to(KIND || chr(10) || event_id, 'UTF8');
    t := length(message);
    message := message || '\x80'::bytea || decode(repeat('00', ((119 - (t % 64))::integer) % 64), 'hex') || int8send(t * 8);
    for block in 0 .. length(message) / 64 - 1 loop
        for i in 0 .. 15 loop
            t := block * 64 + i * 4;
            w[i] := (get_byte(message, t::integer)::bigint << 24) | (get_byte(message, t::integer + 1) << 16)
                | (get_byte(message, t::integer + 2) << 8) | get_byte(message, t::integer + 3);
        end loop;
        for i in 16 .. 79 loop
            t := w[i - 3] # w[i - 8] # w[i - 14] # w[i - 16];
            w[i] := ((t << 1) | (t >> 31)) & WORD;
        end loop;
        a := h[1]; b := h[2]; c := h[3]; d := h[4]; e := h[5];
        for i in 0 .. 79 loop
            if i < 20 then
                f := (b & c) | ((b # WORD) & d); k := 1518500249;
            elsif i < 40 then
                f := b # c # d; k := 1859775393;
            elsif i < 60 then
                f := (b & c) | (b & d) | (c & d); k := 2400959708;
            else
                f := b # c # d; k := 3395469782;
            end if;
            t := ((((a << 5) | (a >> 27)) & WORD) + f + e + k + w[i]) & WORD;
            e := d; d := c; c := ((b << 30) | (b >> 2)) & WORD; b := a; a := t;
        end loop;
        h := array[(h[1] + a) & WORD, (h[2] + b) & WORD, (h[3] + c) & WORD, (h[4] + d) & WORD, (h[5] + e) & WORD];
    end loop;
    for i in 1 .. 4 loop
        digest := digest || int4send((h[i] - case when h[i] > 2147483647 then 4294967296 else 0 end)::integer);
    end loop;
    digest := set_byte(digest, 6, (get_byte(digest, 6) & 15) | 80);
    digest := set_byte(digest, 8, (get_byte(digest, 8) & 63) | 128);
    task := encode(digest, 'hex')::uuid;

    if order_key is not null then
        place := KIND || '/' || lpad((get_byte(sha256(convert_to(order_key, 'UTF8')), 0) % 16)::text, 2, '0');
    end if;
    -- As the library writes it, so that the same event is the same whoever publishes it.
    stored := convert_to('{"eventId":' || to_json(event_id) || ',"eventType":' || to_json(event_type)
        || coalesce(',"timestamp":"' || to_char(happened_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || '"', '')
        || ',"source":' || to_json(source) || coalesce(',"orderKey":' || to_json(order_key), '') || ',"data":' || data || '}', 'UTF8');
    loop
        at := clock_timestamp();
        -- A second publisher waits here until the first one's transaction ends.
        insert into {table} (due_at, enqueued_at, fence, version, id, kind, key, lane, payload)
        values (at, at, floor(1000 * extract(epoch from at))::int8, 0, task, KIND, event_id, place, stored)
        on conflict (id) do nothing;
        if found then
            return true;
        end if;
        select payload into before from {table} where id = task;
        -- Otherwise it was forgotten in between, and is new again.
        exit when found;
    end loop;
    if before is distinct from stored then
        raise exception using errcode = 'unique_violation',
            message = format('publish event: %s was published before with another content', event_id),
            hint = 'Give what happened now an id of its own. Of data each byte counts, white space too.';
    end if;
    return false;
end
$exactly$;
comment on function {publish_ordered} is
    'Publishes an event as {publish} does, to arrive at each endpoint after what was published before it with the same order_key. With null it is in order with nothing.';
revoke execute on function {publish_ordered} from public;
create or replace function {publish}(
    event_id text,
    event_type text,
    source text,
    data json,
    happened_at timestamptz default null
) returns boolean
language sql
security definer
set search_path = pg_catalog, pg_temp
as $exactly$
    select {publish_ordered}(null, event_id, event_type, source, data, happened_at)
$exactly$;
comment on function {publish} is
    'Publishes an event in the transaction of the change that it tells of. False: it was published before. Raises 23505 if it was with another content.';
revoke execute on function {publish} from public;
-- The one calls the other in its owner's name, who may be somebody else than whoever migrates.
do $exactly$
declare
    keeper name;
begin
    select r.rolname into keeper
    from pg_catalog.pg_proc p join pg_catalog.pg_roles r on r.oid = p.proowner
    where p.oid = '{publish}'::regproc
          and p.proowner <> (select o.proowner from pg_catalog.pg_proc o where o.oid = '{publish_ordered}'::regproc);
    if found then
        execute format('alter function {publish_ordered} owner to %I', keeper);
    end if;
end
$exactly$;
