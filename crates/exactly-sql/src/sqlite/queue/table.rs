//! The statements on the tables of tasks, and what a row holds.
//!
//! As with records, statements have room for a power of two of rows and leave what is over empty, so that there are few of
//! them and all stay prepared.

use bytes::Bytes;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, Encode, Row as _, SqlStr, Sqlite, Type};

use exactly::clock::Timestamp;
use exactly::queue::{Failure, FailureKind, Fence, Lane, TaskId, TaskState, WorkerId};

use super::registry::CardStatements;
use crate::name::Name;
use crate::sqlite::table::{integer, sql, unreadable, unsigned};

/// How many rows go into one statement.
pub(super) const CHUNK: usize = 128;

/// How many powers of two there are up to a chunk.
const SIZES: usize = CHUNK.ilog2() as usize + 1;

/// A task as people see it, in the order that [`view`](super::inspect) expects.
const VIEW: &str = "id, kind, key, lane, version, state, failures, rescues, fence, worker, enqueued_at, due_at, \
     started_at, ended_at, failure_kind, failure_message, payload, outcome";

/// A schedule, in the order in which it is read.
const ENTRY: &str = "name, definition, paused, position, changed_at";

/// Every statement on the tables of one prefix, made once.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) insert: Vec<SqlStr>,
    pub(super) find: Vec<SqlStr>,
    pub(super) record: SqlStr,
    pub(super) raise: SqlStr,
    /// What changes are decided on.
    pub(super) load: Vec<SqlStr>,
    pub(super) lost: SqlStr,
    pub(super) save: Vec<SqlStr>,
    pub(super) note: Vec<SqlStr>,
    pub(super) renew: Vec<SqlStr>,
    pub(super) scan_all: SqlStr,
    pub(super) scan_only: SqlStr,
    pub(super) first: SqlStr,
    pub(super) lease: SqlStr,
    pub(super) prune_attempts: SqlStr,
    pub(super) prune: SqlStr,
    pub(super) prune_marks: SqlStr,
    pub(super) set_paused: SqlStr,
    pub(super) set_cap: SqlStr,
    pub(super) unset_lane: SqlStr,
    pub(super) lanes: SqlStr,
    pub(super) depths: SqlStr,
    pub(super) show: SqlStr,
    pub(super) attempts: SqlStr,
    pub(super) end_of_walk: SqlStr,
    pub(super) write_schedule: SqlStr,
    pub(super) pause_schedule: SqlStr,
    pub(super) read_schedule: SqlStr,
    pub(super) schedules: SqlStr,
    pub(super) erase_schedule: SqlStr,
    pub(super) advance_schedule: SqlStr,
    pub(super) cards: CardStatements,
    /// A listing's, up to its conditions.
    pub(super) list: String,
}

impl Statements {
    pub(super) fn new(table: &Name) -> Self {
        let names = Names::beside(table);
        let Names {
            tasks,
            attempts,
            lanes,
            schedules,
            cards,
            marks: _,
        } = &names;
        let old =
            format!("select number from {tasks} where state = ? and ended_at <= ? order by ended_at, number limit ?");
        Self {
            insert: sizes(|size| names.insert(size)),
            find: sizes(|size| {
                format!(
                    "select id, state, outcome, payload from {tasks} where id in ({})",
                    marks(size)
                )
            }),
            record: sql(names.record()),
            raise: sql(names.raise()),
            load: sizes(|size| names.load(&format!("t.id in ({})", marks(size)))),
            lost: sql(names.load("t.state = 1 and t.due_at <= ? order by t.due_at limit ?")),
            save: sizes(|size| names.save(size)),
            note: sizes(|size| names.note(size)),
            renew: sizes(|size| names.renew(size)),
            scan_all: sql(names.scan_all()),
            scan_only: sql(names.scan_only()),
            first: sql(names.first()),
            lease: sql(format!(
                "update {tasks} set state = 1, fence = fence + 1, worker = ?, started_at = ?, ready_at = due_at, due_at = ? \
                 where number in (select value from json_each(?))"
            )),
            prune_attempts: sql(format!("delete from {attempts} where task in ({old})")),
            prune: sql(format!("delete from {tasks} where number in ({old})")),
            prune_marks: sql(names.prune_marks()),
            set_paused: sql(format!(
                "insert into {lanes} (lane, paused) values (?, ?) on conflict do update set paused = excluded.paused"
            )),
            set_cap: sql(format!(
                "insert into {lanes} (lane, cap) values (?, ?) on conflict do update set cap = excluded.cap"
            )),
            unset_lane: sql(format!(
                "delete from {lanes} where lane = ? and paused = 0 and cap is null"
            )),
            lanes: sql(format!("select lane, paused, cap from {lanes} order by lane")),
            depths: sql(names.depths()),
            show: sql(format!("select {VIEW} from {tasks} where id = ?")),
            attempts: sql(format!(
                "select a.fence, a.worker, a.started_at, a.ended_at, a.state, a.failure_kind, a.failure_message \
                 from {tasks} as t join {attempts} as a on a.task = t.number where t.id = ? order by a.fence"
            )),
            end_of_walk: sql(names.end_of_walk()),
            write_schedule: sql(format!(
                "insert into {schedules} (name, definition, paused, changed_at) values (?, ?, coalesce(?, 0), ?) \
                 on conflict do update set definition = excluded.definition, changed_at = excluded.changed_at, \
                 paused = coalesce(?, paused)"
            )),
            pause_schedule: sql(format!(
                "update {schedules} set paused = ?, changed_at = ? where name = ?"
            )),
            read_schedule: sql(format!("select {ENTRY} from {schedules} where name = ?")),
            schedules: sql(format!("select {ENTRY} from {schedules} order by name")),
            erase_schedule: sql(format!("delete from {schedules} where name = ?")),
            advance_schedule: sql(format!(
                "update {schedules} set position = max(coalesce(position, 0), ?) where name = ?"
            )),
            cards: CardStatements::new(cards),
            list: format!("select {VIEW} from {tasks}"),
        }
    }
}

struct Names {
    tasks: String,
    attempts: String,
    lanes: String,
    schedules: String,
    cards: String,
    marks: String,
}

impl Names {
    fn beside(table: &Name) -> Self {
        let prefix = table.as_str().strip_suffix("_tasks").unwrap_or(table.as_str());
        Self {
            tasks: table.quoted(),
            attempts: format!("\"{prefix}_task_attempts\""),
            lanes: format!("\"{prefix}_lanes\""),
            schedules: format!("\"{prefix}_schedules\""),
            cards: format!("\"{prefix}_cards\""),
            marks: format!("\"{prefix}_marks\""),
        }
    }

    fn insert(&self, size: usize) -> String {
        let (tasks, rows) = (&self.tasks, rows(7, size));
        // The condition leaves empty rows out. Rows get their numbers in the order of the values.
        format!(
            "insert into {tasks} (enqueued_at, id, kind, key, lane, version, due_at, payload, state, failures, rescues, \
             fence) select ?, *, 0, 0, 0, ? from (values {rows}) where column1 is not null \
             on conflict (id) do nothing returning id"
        )
    }

    /// The same for one that has ended before it is here.
    fn record(&self) -> String {
        let (tasks, row) = (&self.tasks, rows(17, 1));
        format!(
            "insert into {tasks} (id, kind, key, lane, version, enqueued_at, payload, started_at, state, failures, rescues, \
             fence, due_at, ended_at, failure_kind, failure_message, outcome) values {row} \
             on conflict (id) do nothing returning number"
        )
    }

    fn raise(&self) -> String {
        let marks = &self.marks;
        format!(
            "insert into {marks} as m (name, number, raised_at) values (?, ?, ?) \
             on conflict (name) do update set number = excluded.number, raised_at = excluded.raised_at \
             where m.number < excluded.number returning 1"
        )
    }

    fn prune_marks(&self) -> String {
        let marks = &self.marks;
        let old = format!("select name from {marks} where raised_at <= ? order by raised_at limit ?");
        format!("delete from {marks} where name in ({old})")
    }

    fn load(&self, only: &str) -> String {
        let Self { tasks, attempts, .. } = self;
        format!(
            "select t.number, t.id, t.kind, t.key, t.state, t.failures, t.rescues, t.fence, t.worker, t.started_at, \
             t.due_at, t.ended_at, t.failure_kind, t.failure_message, a.task is not null, t.outcome, t.ready_at \
             from {tasks} as t left join {attempts} as a on a.task = t.number and a.fence = t.fence where {only}"
        )
    }

    fn save(&self, size: usize) -> String {
        let (tasks, rows) = (&self.tasks, rows(10, size));
        format!(
            "update {tasks} set state = column2, failures = column3, rescues = column4, fence = column5, \
             due_at = column6, ended_at = column7, failure_kind = column8, failure_message = column9, outcome = column10 \
             from (values {rows}) where number = column1"
        )
    }

    fn renew(&self, size: usize) -> String {
        let (tasks, leases) = (&self.tasks, rows(2, size));
        format!(
            "update {tasks} set due_at = ? from (values {leases}) \
             where id = column1 and fence = column2 and state = 1 returning id, fence"
        )
    }

    fn note(&self, size: usize) -> String {
        let (attempts, rows) = (&self.attempts, rows(8, size));
        format!(
            "insert into {attempts} (task, fence, worker, started_at, ended_at, state, failure_kind, failure_message) \
             select * from (values {rows}) where column1 is not null"
        )
    }

    /// Lanes after one and up to another that have something due and room for it. It goes from lane to lane, not from task
    /// to task, so a long lane costs no more than a short one.
    fn scan_all(&self) -> String {
        let tasks = &self.tasks;
        let next =
            |after: &str| format!("select min(lane) from {tasks} where state = 0 and lane > {after} and lane <= ?2");
        let scan = format!(
            "with recursive scan(lane) as (select ({}) union all select ({}) from scan where scan.lane is not null)",
            next("?1"),
            next("scan.lane")
        );
        format!("{scan} {} limit ?4", self.open_lanes())
    }

    /// The same for lanes that are named, from the one after the cursor on.
    fn scan_only(&self) -> String {
        let scan = "with scan(lane) as (select distinct value from json_each(?2))";
        format!(
            "{scan} {} order by scan.lane <= ?1, scan.lane limit ?4",
            self.open_lanes()
        )
    }

    fn open_lanes(&self) -> String {
        let Self { tasks, lanes, .. } = self;
        // Only what is capped is counted.
        let room = format!(
            "case when settings.cap is not null then settings.cap - \
             (select count(*) from {tasks} as running where running.state = 1 and running.lane = scan.lane) end"
        );
        format!(
            "select scan.lane, {room} from scan left join {lanes} as settings on settings.lane = scan.lane \
             where scan.lane is not null and settings.paused is not 1 \
             and (settings.cap is not null or scan.lane not in (select value from json_each(?6))) \
             and (settings.cap is null or {room} > 0 and scan.lane not in (select value from json_each(?5))) \
             and exists (select 1 from {tasks} as due where due.state = 0 and due.lane = scan.lane and due.due_at <= ?3)"
        )
    }

    /// The same number of tasks of each of some lanes, as they are due.
    fn first(&self) -> String {
        let tasks = &self.tasks;
        format!(
            "select wanted.key, t.number, t.id, t.kind, t.key, t.lane, t.version, t.failures, t.rescues, t.fence, \
             t.enqueued_at, t.due_at, t.payload from json_each(?1) as wanted cross join {tasks} as t \
             where t.number in (select number from {tasks} as w where w.state = 0 and w.lane = wanted.value \
             and w.due_at <= ?2 order by w.due_at, w.number limit ?3 offset ?4) \
             order by wanted.key, t.due_at, t.number"
        )
    }

    fn end_of_walk(&self) -> String {
        format!(
            "select id from {} where id > ? order by id limit 1 offset ?",
            self.tasks
        )
    }

    /// Each part has an index that holds no done ones.
    fn depths(&self) -> String {
        let tasks = &self.tasks;
        let part = |only: &str| format!("select lane, state, count(*) from {tasks} where {only} group by lane, state");
        format!(
            "{} union all {} union all {} order by 1, 2",
            part("state = 0"),
            part("state = 1"),
            part("state in (2, 4) and ended_at is not null")
        )
    }
}

/// The statement for so many rows.
pub(super) fn sized(statements: &[SqlStr], rows: usize) -> SqlStr {
    let power = rows.next_power_of_two().ilog2() as usize;
    statements[power.min(SIZES - 1)].clone()
}

fn sizes(statement: impl Fn(usize) -> String) -> Vec<SqlStr> {
    (0..SIZES).map(|power| sql(statement(1 << power))).collect()
}

fn marks(count: usize) -> String {
    vec!["?"; count].join(", ")
}

fn rows(columns: usize, size: usize) -> String {
    vec![format!("({})", marks(columns)); size].join(", ")
}

/// Adds an argument; what cannot be encoded is a failure of the statement.
pub(super) fn bind<'q, T>(arguments: &mut SqliteArguments, value: T) -> Result<(), sqlx::Error>
where
    T: Encode<'q, Sqlite> + Type<Sqlite>,
{
    arguments.add(value).map_err(sqlx::Error::Encode)
}

pub(super) fn id_bytes(id: TaskId) -> Vec<u8> {
    id.as_uuid().as_bytes().to_vec()
}

pub(super) fn stored_id(row: &SqliteRow, column: usize) -> Result<TaskId, sqlx::Error> {
    let bytes: [u8; 16] = crate::sqlite::table::fixed(row, column)?;
    Ok(TaskId::from_uuid(uuid::Uuid::from_bytes(bytes)))
}

pub(super) fn worker(row: &SqliteRow, column: usize) -> Result<Option<WorkerId>, sqlx::Error> {
    if row.try_get::<Option<&[u8]>, _>(column)?.is_none() {
        return Ok(None);
    }
    let bytes: [u8; 16] = crate::sqlite::table::fixed(row, column)?;
    Ok(Some(WorkerId::from_uuid(uuid::Uuid::from_bytes(bytes))))
}

pub(super) fn worker_bytes(worker: Option<WorkerId>) -> Option<Vec<u8>> {
    worker.map(|worker| worker.as_uuid().as_bytes().to_vec())
}

pub(super) fn fence(row: &SqliteRow, column: usize) -> Result<Fence, sqlx::Error> {
    unsigned(row, column).map(Fence::new)
}

pub(super) fn fence_number(fence: Fence) -> i64 {
    integer(fence.get())
}

pub(super) fn count(row: &SqliteRow, column: usize) -> Result<u32, sqlx::Error> {
    let number: i64 = row.try_get(column)?;
    u32::try_from(number).map_err(|_| unreadable(column, "a count or version has 32 bits"))
}

pub(super) fn state(row: &SqliteRow, column: usize) -> Result<TaskState, sqlx::Error> {
    let code: i64 = row.try_get(column)?;
    let state = i16::try_from(code).ok().and_then(TaskState::from_code);
    state.ok_or_else(|| unreadable(column, "a state has a known number"))
}

pub(super) fn lane(row: &SqliteRow, column: usize) -> Result<Lane, sqlx::Error> {
    let name: &str = row.try_get(column)?;
    Lane::new(name).map_err(|_| unreadable(column, "a lane has a name"))
}

pub(super) fn moment(row: &SqliteRow, column: usize) -> Result<Option<Timestamp>, sqlx::Error> {
    if row.try_get::<Option<i64>, _>(column)?.is_none() {
        return Ok(None);
    }
    crate::sqlite::table::instant(row, column).map(Some)
}

pub(super) fn blob(row: &SqliteRow, column: usize) -> Result<Option<Bytes>, sqlx::Error> {
    let bytes: Option<&[u8]> = row.try_get(column)?;
    Ok(bytes.map(Bytes::copy_from_slice))
}

/// The kind is in this column and the message in the next.
pub(super) fn failure(row: &SqliteRow, column: usize) -> Result<Option<Failure>, sqlx::Error> {
    let Some(code) = row.try_get::<Option<i64>, _>(column)? else {
        return Ok(None);
    };
    let kind = i16::try_from(code).ok().and_then(FailureKind::from_code);
    let kind = kind.ok_or_else(|| unreadable(column, "a kind of failure has a known number"))?;
    let message: String = row.try_get(column + 1)?;
    Ok(Some(Failure { kind, message }))
}
