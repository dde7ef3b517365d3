-- What operators did, to the records of every table here. Numbers are never used twice, so that whoever follows the trail
-- misses nothing.
create table if not exists exactly_trail (
  number integer not null primary key autoincrement,
  noted_at integer not null,
  table_name text not null,
  -- Null if it was done to many.
  call blob check (length(call) = 32),
  actor text not null,
  action text not null,
  detail text not null
) strict;
create index if not exists exactly_trail_call on exactly_trail (call, number) where call is not null;
