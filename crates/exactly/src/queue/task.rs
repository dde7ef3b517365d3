//! What is to be done, and how it is known.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

/// A task as it is enqueued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    id: TaskId,
    kind: Arc<str>,
    key: Box<str>,
    lane: Lane,
    payload: Bytes,
    delay: Duration,
    version: u32,
}

impl Task {
    /// The longest kind, in bytes.
    pub const KIND_BYTES_MAX: usize = 128;
    /// The longest key, in bytes.
    pub const KEY_BYTES_MAX: usize = 512;
    /// The largest payload, in bytes. What is larger belongs elsewhere, with its address in the payload.
    pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

    /// A task that is due at once, in the lane of its kind. There is one task of a kind with a key, ever.
    pub fn new(
        kind: impl Into<Arc<str>>,
        key: impl Into<Box<str>>,
        payload: impl Into<Bytes>,
    ) -> Result<Self, InvalidTask> {
        let (kind, key, payload) = (kind.into(), key.into(), payload.into());
        check_text("kind", &kind, Self::KIND_BYTES_MAX)?;
        check_text("key", &key, Self::KEY_BYTES_MAX)?;
        if payload.len() > Self::PAYLOAD_BYTES_MAX {
            let (len, most) = (payload.len(), Self::PAYLOAD_BYTES_MAX);
            return Err(InvalidTask(format!(
                "the payload has {len} bytes, and {most} are the most"
            )));
        }
        Ok(Self {
            id: TaskId::of(&kind, &key),
            lane: Lane(Arc::clone(&kind)),
            kind,
            key,
            payload,
            delay: Duration::ZERO,
            version: 0,
        })
    }

    /// Puts it in this lane.
    #[must_use]
    pub fn in_lane(mut self, lane: Lane) -> Self {
        self.lane = lane;
        self
    }

    /// Due so long after it is enqueued.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The version of the algorithm that is to do it, kept with the task.
    #[must_use]
    pub fn with_version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// What its kind and key come to.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Which handler it is for.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// What it is known by, among its kind.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The lane that it waits in.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// What its handler gets.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// How long after enqueuing it is due.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// The version of its algorithm.
    pub fn version(&self) -> u32 {
        self.version
    }
}

/// What was wrong with a task, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidTask(String);

impl fmt::Display for InvalidTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read task: {}", self.0)
    }
}

impl std::error::Error for InvalidTask {}

fn check_text(name: &str, text: &str, most: usize) -> Result<(), InvalidTask> {
    if text.is_empty() {
        return Err(InvalidTask(format!("the {name} is empty")));
    }
    if text.len() > most {
        let len = text.len();
        return Err(InvalidTask(format!(
            "the {name} has {len} bytes, and {most} are the most"
        )));
    }
    if let Some(control) = text.chars().find(|c| c.is_control()) {
        return Err(InvalidTask(format!(
            "the {name} contains the control character {control:?}"
        )));
    }
    Ok(())
}

/// The UUID (version 5) of a task's kind and key: the same everywhere, without asking anybody.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(Uuid);

/// By half of it: it is a digest already, and a worker looks for each of its tasks again and again.
impl Hash for TaskId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.as_u64_pair().0);
    }
}

impl TaskId {
    /// The namespace of all tasks.
    pub const NAMESPACE: Uuid = Uuid::from_u128(0x5d0f_6c1e_3a34_4b0b_9e57_4c1f_7a0e_c0de);

    /// The id of the task of this kind with this key.
    pub fn of(kind: &str, key: &str) -> Self {
        // A kind has no control characters, so nothing else comes to the same name.
        let mut name = String::with_capacity(kind.len() + 1 + key.len());
        name.push_str(kind);
        name.push('\n');
        name.push_str(key);
        Self(Uuid::new_v5(&Self::NAMESPACE, name.as_bytes()))
    }

    /// An id that was stored or sent.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// To store or send it.
    pub const fn as_uuid(&self) -> &Uuid {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({})", self.0)
    }
}

impl FromStr for TaskId {
    type Err = InvalidTask;

    fn from_str(text: &str) -> Result<Self, InvalidTask> {
        let uuid = Uuid::try_parse(text);
        uuid.map(Self)
            .map_err(|_| InvalidTask(format!("{text:?} is not the id of a task, which is a UUID")))
    }
}

/// A line of tasks that waits apart from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(Arc<str>);

impl Lane {
    /// The longest name, in bytes.
    pub const BYTES_MAX: usize = 255;

    /// The lane of this name.
    pub fn new(name: impl Into<Arc<str>>) -> Result<Self, InvalidTask> {
        let name = name.into();
        check_text("lane", &name, Self::BYTES_MAX)?;
        Ok(Self(name))
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a task is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskState {
    /// Until it is due and a worker has room for it.
    Waiting,
    /// A worker has leased it.
    Running,
    /// Taken out until it is revived.
    Held,
    /// It happened, and its outcome is stored.
    Done,
    /// It failed for good, and stays with its history until it is revived or pruned.
    Dead,
}

impl TaskState {
    /// Every state, in the order of their [codes](Self::code).
    pub const ALL: [Self; 5] = [Self::Waiting, Self::Running, Self::Held, Self::Done, Self::Dead];

    /// Its name, as operators write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Held => "held",
            Self::Done => "done",
            Self::Dead => "dead",
        }
    }

    /// Its number in a database.
    pub const fn code(self) -> i16 {
        match self {
            Self::Waiting => 0,
            Self::Running => 1,
            Self::Held => 2,
            Self::Done => 3,
            Self::Dead => 4,
        }
    }

    /// The state of this number.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What came of enqueuing a task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a task that was found may have an outcome, or be dead"]
pub enum Enqueued {
    /// It was added.
    New(TaskId),
    /// Its key was taken before, and nothing was changed.
    Found(Found),
}

impl Enqueued {
    /// Whether this call added it.
    pub fn is_new(&self) -> bool {
        matches!(self, Self::New(_))
    }

    /// The task's id.
    pub fn id(&self) -> TaskId {
        match self {
            Self::New(id) => *id,
            Self::Found(found) => found.id,
        }
    }
}

/// A task that was there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which one.
    pub id: TaskId,
    /// Where it is on its way.
    pub state: TaskState,
    /// What came of it, if it is done.
    pub outcome: Option<Bytes>,
    /// Whether it was enqueued with another payload than this time.
    pub differs: bool,
}
