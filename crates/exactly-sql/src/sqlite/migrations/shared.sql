create table if not exists exactly_versions (
  table_name text not null primary key,
  version integer not null
) strict, without rowid;
-- The store's time when a process last wrote it, and that process's wall clock at that moment.
create table if not exists exactly_clock (
  only integer not null primary key check (only = 1),
  store_ms integer not null,
  wall_ms integer not null
) strict;
