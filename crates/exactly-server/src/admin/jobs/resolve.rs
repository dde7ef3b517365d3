//! Settling jobs of which somebody found out that they happened.

use bytes::Bytes;
use exactly::Fenced;
use exactly::queue::{Fence, Lease, TaskId, TaskState, TaskView};

use super::ask::ResolveJob;
use super::desk::JobDesk;
use super::wire::ResolvedJob;
use crate::admin::desk::asked;
use crate::admin::desk::audit::Deed;
use crate::admin::input::Actor;
use crate::admin::problem::{Answer, Problem};
use crate::work::letter::{INBOX_KIND, QUARANTINE_KIND};

/// What tasks of the server's own are called by. What came of them is for the server to say.
const OWN_KINDS: &str = "exactly.";

impl JobDesk {
    /// Makes a job done that is held or dead; refused only if there is none, or no such attempt can be.
    pub(crate) async fn resolve(&self, id: TaskId, said: &ResolveJob, actor: &Actor) -> Answer<ResolvedJob> {
        if said.fence.is_some_and(|fence| i64::try_from(fence).is_err()) {
            return Err(Problem::invalid("fence", format!("accepted is 0 to {}", i64::MAX)));
        }
        let Some(view) = asked("read the job", self.queue().show(id)).await? else {
            return Err(Problem::no_such_job(id));
        };
        if let Some(why) = why_not(&view) {
            return Ok(left(&view, why));
        }
        let seen = Lease {
            id,
            fence: said.fence.map_or(view.fence, Fence::new),
        };
        let outcome = said.outcome.as_ref().map_or("null", |outcome| outcome.get());
        let outcome = Bytes::copy_from_slice(outcome.as_bytes());
        let deed = Deed::new(actor, "resolve", None, format!("say that job {id} has happened"));
        let conclude = async {
            Ok(
                match asked("resolve the job", self.queue().conclude(seen, &outcome)).await? {
                    Fenced::Applied => ResolvedJob {
                        id: id.to_string(),
                        resolved: true,
                        was: view.state.into(),
                        why: None,
                    },
                    Fenced::Superseded => left(&view, "it is not what it was: look at it again"),
                },
            )
        };
        self.desk()
            .audited(deed.because(said.reason.as_ref()), conclude, in_words)
            .await
    }
}

fn why_not(view: &TaskView) -> Option<&'static str> {
    let is_own = view.kind.starts_with(OWN_KINDS) && ![INBOX_KIND, QUARANTINE_KIND].contains(&&*view.kind);
    match view.state {
        _ if is_own => Some("it is the server's own, and only the server says what came of it; requeue it"),
        TaskState::Waiting => Some("it waits to run; pause its lane if it must not"),
        TaskState::Running => Some("it runs; wait until its attempt ends, or its lease does"),
        // Done as it is to be, or otherwise: the queue tells.
        TaskState::Done | TaskState::Dead | TaskState::Held => None,
    }
}

fn left(view: &TaskView, why: &str) -> ResolvedJob {
    ResolvedJob {
        id: view.id.to_string(),
        resolved: false,
        was: view.state.into(),
        why: Some(why.to_owned()),
    }
}

fn in_words(resolved: &ResolvedJob) -> String {
    match &resolved.why {
        None => "it is done".to_owned(),
        Some(why) => format!("left as it is: {why}"),
    }
}
