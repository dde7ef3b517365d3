-- Values by their names, such as who wants to hear of events.
create table if not exists "{prefix}_cards" (
  name text not null primary key,
  revision integer not null,
  changed_at integer not null,
  value blob not null
) strict, without rowid;
