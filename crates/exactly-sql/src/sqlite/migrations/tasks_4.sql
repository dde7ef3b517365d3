-- Since when a number is the highest, so that it can be forgotten. Of those that were there nobody knows, so they count from the
-- migration. SQLite adds no column that may be there already, so the table is made anew, which can be repeated.
create table "{prefix}_marks_next" (
  name text not null primary key,
  number integer not null,
  raised_at integer not null
) strict, without rowid;
insert into "{prefix}_marks_next" (name, number, raised_at)
  select name, number, (select store_ms from exactly_clock) from "{prefix}_marks";
drop table "{prefix}_marks";
alter table "{prefix}_marks_next" rename to "{prefix}_marks";
-- For pruning.
create index if not exists "{prefix}_marks_raised" on "{prefix}_marks" (raised_at);
