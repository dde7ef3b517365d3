-- Values by their names, such as who wants to hear of events.
create table if not exists "{prefix}_cards" (
  name text not null primary key,
  revision integer not null,
  changed_at integer not null,
  value blob not null
) strict, without rowid;
-- The highest number under each name, for what comes out of order.
create table if not exists "{prefix}_marks" (
  name text not null primary key,
  number integer not null
) strict, without rowid;
