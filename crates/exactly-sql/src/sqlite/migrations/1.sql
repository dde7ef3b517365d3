-- A rowid table: the ids are hashes, so rows kept in their order would be written to one random page each. This way only
-- the index on the ids is, and rows lie in the order of their arrival. Times are milliseconds on the clock of
-- exactly_clock. That a hash or token has its length is checked where it is read: a function in a check costs every
-- statement a copy of each page that it changes.
create table if not exists "{table}" (
  id blob not null primary key,
  -- Null in a global scope.
  principal text,
  operation text not null,
  key text not null,
  fingerprint blob not null,
  -- 0: in flight, 1: done.
  state integer not null check (state in (0, 1)),
  attempt integer not null check (attempt > 0),
  token blob not null,
  -- The lease is null once done.
  lease_ms integer,
  lease_until integer,
  -- 0: held in doubt once the lease ended, 1: run again.
  on_lost integer,
  created_at integer not null,
  completed_at integer,
  -- Null while in flight, and if kept forever.
  expires_at integer,
  -- Last, so that reading the rest of a row does not read through a large one.
  outcome blob
) strict;
-- For sweeping.
create index if not exists "{table}_expires" on "{table}" (expires_at) where expires_at is not null;
-- Holds the few rows in flight and in doubt, to list and sweep them without a look at all the others.
create index if not exists "{table}_open" on "{table}" (on_lost, lease_until) where state = 0;
