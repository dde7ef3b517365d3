-- Since when a task was due is kept while it runs, so that it goes back to its place in its lane. SQLite adds no column that
-- may be there already, so the table is made anew, which can be repeated.
create table "{table}_next" (
  number integer not null primary key,
  id blob not null unique,
  kind text not null,
  key text not null,
  lane text not null,
  version integer not null,
  -- 0: waiting, 1: running, 2: held, 3: done, 4: dead.
  state integer not null check (state in (0, 1, 2, 3, 4)),
  failures integer not null,
  rescues integer not null,
  fence integer not null,
  worker blob,
  enqueued_at integer not null,
  -- When it is due if it waits, when its lease ends if it runs, and null otherwise.
  due_at integer,
  -- While it runs, when it was due before it was leased.
  ready_at integer,
  started_at integer,
  ended_at integer,
  failure_kind integer,
  failure_message text,
  payload blob not null,
  -- Last, so that reading the rest of a row does not read through a large one.
  outcome blob
) strict;
insert into "{table}_next" (
  number, id, kind, key, lane, version, state, failures, rescues, fence, worker, enqueued_at, due_at, started_at, ended_at,
  failure_kind, failure_message, payload, outcome
) select
  number, id, kind, key, lane, version, state, failures, rescues, fence, worker, enqueued_at, due_at, started_at, ended_at,
  failure_kind, failure_message, payload, outcome
from "{table}";
drop table "{table}";
alter table "{table}_next" rename to "{table}";
-- Each lane's tasks as they are due. Holds only what waits.
create index if not exists "{table}_waiting" on "{table}" (lane, due_at) where state = 0;
-- How many of a lane run, and whose lease has ended. Few run at once, so the latter looks at all of them.
create index if not exists "{table}_running" on "{table}" (lane, due_at) where state = 1;
-- For pruning, and for the few that are held or dead.
create index if not exists "{table}_ended" on "{table}" (state, ended_at) where ended_at is not null;
