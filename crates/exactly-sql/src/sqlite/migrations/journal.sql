create table if not exists exactly_versions (
  table_name text not null primary key,
  version integer not null
) strict, without rowid;
-- The calls that a client made. Times are milliseconds on the wall clock.
create table if not exists exactly_journal (
  operation text not null primary key,
  key text not null,
  method text not null,
  place text not null,
  -- Of everything that two calls with one key must have in common.
  digest blob not null,
  -- How many processes opened it with this key.
  openings integer not null check (openings > 0),
  opened_at integer not null,
  -- Who opened it last has closed it by then, or never will.
  due_at integer not null,
  expires_at integer not null,
  -- Null while nobody closed it.
  ending text check (ending in ('applied', 'not_applied', 'unknown'))
) strict;
create index if not exists exactly_journal_key on exactly_journal (key);
create index if not exists exactly_journal_settled on exactly_journal (expires_at)
  where ending in ('applied', 'not_applied');
create index if not exists exactly_journal_unsettled on exactly_journal (opened_at)
  where ending is null or ending = 'unknown';
insert into exactly_versions (table_name, version) values ('exactly_journal', 1) on conflict do nothing;
