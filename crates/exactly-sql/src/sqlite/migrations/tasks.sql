-- A rowid table: tasks lie in the order of their arrival, and the number breaks ties between those that are due at one
-- moment. Times are milliseconds on the clock of exactly_clock.
create table if not exists "{table}" (
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
  started_at integer,
  ended_at integer,
  failure_kind integer,
  failure_message text,
  payload blob not null,
  -- Last, so that reading the rest of a row does not read through a large one.
  outcome blob
) strict;
-- Each lane's tasks as they are due. Holds only what waits.
create index if not exists "{table}_waiting" on "{table}" (lane, due_at) where state = 0;
-- How many of a lane run, and whose lease has ended. Few run at once, so the latter looks at all of them.
create index if not exists "{table}_running" on "{table}" (lane, due_at) where state = 1;
-- For pruning, and for the few that are held or dead.
create index if not exists "{table}_ended" on "{table}" (state, ended_at) where ended_at is not null;
-- Attempts that ended without an outcome.
create table if not exists "{prefix}_task_attempts" (
  task integer not null,
  fence integer not null,
  worker blob,
  started_at integer not null,
  ended_at integer not null,
  -- What became of the task.
  state integer not null,
  failure_kind integer not null,
  failure_message text not null,
  primary key (task, fence)
) strict, without rowid;
-- Lanes that are paused or capped.
create table if not exists "{prefix}_lanes" (
  lane text not null primary key,
  paused integer not null default 0 check (paused in (0, 1)),
  cap integer check (cap >= 0)
) strict, without rowid;
-- Schedules, and up to when their occurrences have become tasks. Their instants are on the calendar, not on the clock that
-- judges leases.
create table if not exists "{prefix}_schedules" (
  name text not null primary key,
  definition blob not null,
  paused integer not null check (paused in (0, 1)),
  -- Null before the first time.
  position integer,
  changed_at integer not null
) strict, without rowid;
