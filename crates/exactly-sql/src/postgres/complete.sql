create or replace function {complete}(
    call text,
    token text,
    status integer,
    headers jsonb default '{}',
    body bytea default '',
    keep text default '86400'
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set standard_conforming_strings = on
as $exactly$
declare
    HEADERS_MAX constant integer := 1000;
    BODY_MAX constant integer := 16777216;
    -- Of one connection, or of the first caller alone: never replayed.
    LEFT_OUT constant text[] := array['connection', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'content-length',
        'keep-alive', 'proxy-connection', 'set-cookie', 'set-cookie2', 'authorization', 'proxy-authenticate',
        'proxy-authorization', 'www-authenticate', 'authentication-info', 'proxy-authentication-info', 'date', 'age'];
    claimed_call bytea;
    claimed_by bytea;
    pairs jsonb;
    pair jsonb;
    of_connection text[];
    header_name text;
    header_value bytea;
    header_count integer := 0;
    packed bytea := '';
    answer bytea;
    until timestamptz;
    found_state smallint;
    found_token bytea;
    found_attempt integer;
begin
    if call is null or call !~ '^[0-9A-Fa-f]{64}$' then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'complete call: call is not 64 hex digits',
            hint = 'Pass the request header Exactly-Call as it came.';
    end if;
    if token is null or token !~ '^[0-9A-Fa-f]{32}$' then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'complete call: token is not 32 hex digits',
            hint = 'Pass the request header Exactly-Token as it came.';
    end if;
    if status is null or status not between 200 and 499 or status in (408, 425, 429) then
        raise exception using errcode = 'invalid_parameter_value',
            message = format('complete call: status is %s, which no effect is stored under', coalesce(status::text, 'null')),
            hint = 'Use 200 to 499, but not 408, 425 or 429. For any other answer roll back: nothing happened then.';
    end if;
    if octet_length(body) > BODY_MAX then
        raise exception using errcode = 'program_limit_exceeded',
            message = format('complete call: body has %s bytes, and %s are the most', octet_length(body), BODY_MAX),
            hint = 'Pass null as body: the call is then done, and duplicates are told that its answer was not kept.';
    end if;
    if keep is null then
        keep := '86400';
    end if;
    if keep ~ '^[0-9]{1,10}$' then
        until := clock_timestamp()::timestamptz(3) + keep::bigint * interval '1 second';
    elsif keep <> 'forever' then
        raise exception using errcode = 'invalid_parameter_value',
            message = format('complete call: keep is %L, which is neither a number of seconds nor forever', keep),
            hint = 'Pass the request header Exactly-Keep as it came.';
    end if;

    -- Headers become a list of pairs, in the order given; an object has none, so it is taken as the server sorts it.
    case coalesce(jsonb_typeof(headers), 'null')
        when 'null' then
            pairs := '[]';
        when 'array' then
            pairs := headers;
        when 'object' then
            select coalesce(jsonb_agg(jsonb_build_array(e.name, v.item) order by e.n, v.n), '[]') into pairs
            from jsonb_each(headers) with ordinality as e (name, given, n),
                 jsonb_array_elements(case jsonb_typeof(e.given) when 'array' then e.given
                                      else jsonb_build_array(e.given) end) with ordinality as v (item, n);
        else
            raise exception using errcode = 'invalid_parameter_value',
                message = 'complete call: headers are neither an object nor a list of pairs',
                hint = 'Pass {"content-type": "application/json"} or [["content-type", "application/json"]].';
    end case;
    select coalesce(array_agg(lower(btrim(named.header) collate "C")), '{}') into of_connection
    from jsonb_array_elements(pairs) as p (item), regexp_split_to_table(p.item ->> 1, ',') as named (header)
    where jsonb_typeof(p.item) = 'array' and lower((p.item ->> 0) collate "C") = 'connection';
    for pair in select p.item from jsonb_array_elements(pairs) with ordinality as p (item, n) order by p.n loop
        if jsonb_typeof(pair) <> 'array' or jsonb_array_length(pair) <> 2 or jsonb_typeof(pair -> 0) <> 'string'
            or jsonb_typeof(pair -> 1) not in ('string', 'number')
        then
            raise exception using errcode = 'invalid_parameter_value',
                message = format('complete call: header %s is not a name and a value', pair),
                hint = 'A value is a string or a number; a header that comes several times has a list of them.';
        end if;
        if (pair ->> 0) collate "C" !~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+$' then
            raise exception using errcode = 'invalid_parameter_value',
                message = format('complete call: %L is no name of a header', pair ->> 0);
        end if;
        header_name := lower((pair ->> 0) collate "C");
        -- Those of HTTP itself, and all that the gateway writes anew for every caller.
        continue when header_name = any (LEFT_OUT) or header_name = any (of_connection)
            or header_name like 'idempotency-%' or header_name like 'access-control-%';
        if (pair ->> 1) collate "C" ~ '[\u0001-\u0008\u000A-\u001F\u007F]' then
            raise exception using errcode = 'invalid_parameter_value',
                message = format('complete call: the value of header %s has a control character', header_name);
        end if;
        header_value := convert_to(pair ->> 1, 'UTF8');
        packed := packed || int4send(octet_length(header_name)) || convert_to(header_name, 'UTF8')
            || int4send(octet_length(header_value)) || header_value;
        header_count := header_count + 1;
        if header_count > HEADERS_MAX then
            raise exception using errcode = 'program_limit_exceeded',
                message = format('complete call: more than %s headers', HEADERS_MAX);
        end if;
    end loop;

    -- What the gateway stores for a plain answer: whole, or without a body that it was only given a status.
    if body is null then
        answer := '\x0102'::bytea || int2send(status::smallint);
    else
        answer := '\x0101'::bytea || int2send(status::smallint) || int2send(header_count::smallint) || packed || body;
    end if;
    claimed_call := decode(call, 'hex');
    claimed_by := decode(token, 'hex');
    update {table} c
    set state = 1, outcome = answer, completed_at = clock_timestamp()::timestamptz(3), expires_at = until
    where c.id = claimed_call and c.token = claimed_by and c.state = 0;
    if found then
        -- The gateway will tell the answer to its caller, so a power cut must not take it back.
        if current_setting('synchronous_commit') = 'off' then
            perform set_config('synchronous_commit', 'on', true);
        end if;
        return;
    end if;

    select c.state, c.token, c.attempt into found_state, found_token, found_attempt
    from {table} c where c.id = claimed_call;
    if found and found_state = 1 and found_token = claimed_by then
        raise exception using errcode = 'XO002',
            message = format('complete call %s: it is completed already', call),
            hint = 'Roll back. The transaction that completed it holds the effect: after a lost commit, this says that '
                || 'it came through.';
    end if;
    raise exception using errcode = 'XO001',
        message = format('complete call %s: the claim is superseded', call),
        detail = case when found then format('Attempt %s owns the call.', found_attempt)
                 else 'There is no such call: it was given up or forgotten, or was never begun in this table.' end,
        hint = 'Roll back, and nothing has happened. Whoever sends the request again runs it again.';
end
$exactly$;
comment on function {complete} is
    'Completes a call of the gateway in the transaction that makes its effect. Raises XO001 if the claim is superseded, XO002 if the call is completed already.';
revoke execute on function {complete} from public;
