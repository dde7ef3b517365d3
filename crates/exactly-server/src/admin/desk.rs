//! What operators do, wherever they ask from.
//!
//! The API's handlers and the command line that works on a store both stand in front of this. Every action is written
//! into the trail before it is taken, and again with what came of it: an action that cannot be written down is not taken.

pub(crate) mod audit;
mod history;
mod purge;
mod settlement;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use exactly::layer::Settlement;
use exactly::store::{self, CallView, Filter, TrailFilter};
use exactly::{CallId, Fenced, Operate, StoreError};
use tokio::time::timeout;

use self::audit::Deed;
use self::settlement::Wanted;
use super::ask::{FreeQuery, ListQuery, Resolve, TrailQuery};
use super::input::{Actor, AttemptNumber, ClaimName, IdText, Limit, Number};
use super::problem::{Answer, Problem};
use super::settle::{Settle, is_http};
use super::wire::{Became, Call, CallDetail, CallPage, Settled, Trail, claim_name};

/// How long a store may take for one step.
pub(crate) const STORE_PATIENCE: Duration = Duration::from_secs(5);

/// The most records in a page unless told otherwise.
pub(crate) const LIMIT_DEFAULT: u32 = 100;

/// Works on the records of one store.
#[derive(Clone)]
pub(crate) struct Desk {
    store: Arc<dyn Operate>,
    settle: Settle,
}

/// Which claim an operator has seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    attempt: Option<AttemptNumber>,
    claim: Option<ClaimName>,
}

impl Desk {
    pub(crate) fn new(store: Arc<dyn Operate>, settle: Settle) -> Self {
        Self { store, settle }
    }

    pub(crate) async fn list(&self, query: &ListQuery) -> Answer<CallPage> {
        let filter = Filter {
            phase: query.phase.map(Into::into),
            operation: query.operation.as_ref().map(|text| text.as_ref().to_owned()),
            principal: query.principal.as_ref().map(|text| text.as_ref().to_owned()),
            created_before: query.created_before.map(|at| at.0),
            after: query.after.map(IdText::id),
            limit: query.limit.map_or(LIMIT_DEFAULT, Limit::get),
        };
        let page = asked("list records", self.store.list(&filter)).await?;
        Ok(CallPage {
            calls: page.calls.iter().map(|view| Call::of(view, false)).collect(),
            next: page.next.map(|id| id.to_string()),
        })
    }

    /// A record with its past. To show its key is an action like any other.
    pub(crate) async fn show(&self, id: CallId, reveal: bool, actor: &Actor) -> Answer<CallDetail> {
        if !reveal {
            return self.look(id, false).await;
        }
        let deed = Deed::new(actor, "reveal", Some(id), "show the key".to_owned());
        self.audited(deed, self.look(id, true), |_| "shown".to_owned()).await
    }

    async fn look(&self, id: CallId, reveal: bool) -> Answer<CallDetail> {
        let view = self.get(&id).await?;
        let filter = TrailFilter {
            call: Some(id),
            after: None,
            limit: TrailFilter::LIMIT_MAX,
        };
        let noted = asked("read the trail", self.store.trail(&filter)).await?;
        Ok(CallDetail {
            call: Call::of(&view, reveal),
            history: history::of(&view, noted),
        })
    }

    /// Ends a doubt with what an operator found out.
    pub(crate) async fn resolve(&self, id: CallId, asked: Resolve, actor: &Actor) -> Answer<Settled> {
        let wanted = Wanted::of(&asked)?;
        let deed = Deed::new(actor, "resolve", Some(id), wanted.in_words()).because(asked.reason.as_ref());
        let seen = Seen {
            attempt: asked.attempt,
            claim: asked.claim,
        };
        self.audited(deed, self.settle(id, wanted, seen), in_words).await
    }

    async fn settle(&self, id: CallId, wanted: Wanted, seen: Seen) -> Answer<Settled> {
        let view = self.get(&id).await?;
        seen.check(&view)?;
        if let Some(why) = why_not_in_doubt(view.phase) {
            return Err(Problem::not_in_doubt(&id, why));
        }
        let (fenced, now) = match wanted {
            Wanted::Answer(answer) if is_http(&view) => {
                let settled = (self.settle)(&view, Settlement::Happened(*answer)).await;
                (settled.map_err(still_offered)?, Became::Done)
            }
            Wanted::Answer(_) => {
                let why = "the call was not made over HTTP, so its outcome is bytes; give outcome_base64";
                return Err(Problem::other_kind(&id, "answer", why));
            }
            Wanted::Outcome { .. } if is_http(&view) => {
                let why = "the call was made over HTTP, so its outcome is an answer; give answer";
                return Err(Problem::other_kind(&id, "outcome_base64", why));
            }
            Wanted::Outcome { outcome, keep } => {
                let completing = self.store.complete(&view.claim, &outcome, keep);
                (asked("complete record", completing).await?, Became::Done)
            }
            Wanted::DidNotHappen => {
                let abandoning = self.store.abandon(&view.claim);
                (asked("abandon record", abandoning).await?, Became::Absent)
            }
        };
        applied(&view, fenced, now)
    }

    /// Lets go of a key: what was lost did not happen, what is done is forgotten.
    pub(crate) async fn free(&self, id: CallId, asked: FreeQuery, actor: &Actor) -> Answer<Settled> {
        let deed = Deed::new(actor, "free", Some(id), "free the key".to_owned()).because(asked.reason.as_ref());
        let seen = Seen {
            attempt: asked.attempt,
            claim: asked.claim,
        };
        self.audited(deed, self.let_go(id, seen), in_words).await
    }

    async fn let_go(&self, id: CallId, seen: Seen) -> Answer<Settled> {
        let view = self.get(&id).await?;
        seen.check(&view)?;
        let fenced = match view.phase {
            store::Phase::InFlight => {
                let now = asked("read the store's clock", self.store.now()).await?;
                let remaining = view.until.map_or(Duration::ZERO, |until| until.since(now));
                return Err(Problem::in_flight(&id, remaining));
            }
            store::Phase::InDoubt | store::Phase::Lost => {
                asked("abandon record", self.store.abandon(&view.claim)).await?
            }
            store::Phase::Done => asked("forget record", self.store.forget(&view.claim)).await?,
        };
        applied(&view, fenced, Became::Absent)
    }

    pub(crate) async fn trail(&self, query: &TrailQuery) -> Answer<Trail> {
        let limit = query.limit.map_or(LIMIT_DEFAULT, Limit::get);
        let filter = TrailFilter {
            call: query.call.map(IdText::id),
            after: query.after.map(Number::get),
            limit,
        };
        let noted = asked("read the trail", self.store.trail(&filter)).await?;
        let full = u32::try_from(noted.len()).is_ok_and(|len| len >= limit);
        Ok(Trail {
            next: noted.last().filter(|_| full).map(|last| last.number),
            entries: noted.into_iter().map(Into::into).collect(),
        })
    }

    async fn get(&self, id: &CallId) -> Answer<CallView> {
        let view = asked("read record", self.store.get(id)).await?;
        view.ok_or_else(|| Problem::no_such_call(id))
    }
}

impl Seen {
    /// Refuses to act on what the operator has not seen.
    fn check(self, view: &CallView) -> Answer<()> {
        let same_attempt = self.attempt.is_none_or(|seen| seen.get() == view.claim.attempt.get());
        let same_claim = self.claim.is_none_or(|seen| seen == claim_name(&view.claim));
        if same_attempt && same_claim {
            return Ok(());
        }
        let why = "the call has another attempt or claim than the one you name; look at it again";
        Err(Problem::superseded(&view.claim.id, why))
    }
}

fn applied(view: &CallView, fenced: Fenced, now: Became) -> Answer<Settled> {
    match fenced {
        Fenced::Applied => Ok(Settled {
            id: view.claim.id.to_string(),
            was: view.phase.into(),
            now,
        }),
        Fenced::Superseded => {
            let why = "the call was settled by its owner or by somebody else meanwhile; look at it again";
            Err(Problem::superseded(&view.claim.id, why))
        }
    }
}

fn in_words(settled: &Settled) -> String {
    let now = match settled.now {
        Became::Done => "stored the outcome",
        Became::Absent => "freed the key",
    };
    now.to_owned()
}

fn why_not_in_doubt(phase: store::Phase) -> Option<&'static str> {
    match phase {
        store::Phase::InDoubt => None,
        store::Phase::InFlight => Some("the call is in flight: wait until its attempt ends, or its lease does"),
        store::Phase::Lost => Some("an attempt was lost, and the next request runs it again; free it to forget it"),
        store::Phase::Done => Some("the call is done: it happened and its outcome is stored"),
    }
}

/// The layer goes on offering an outcome that the store could not take.
fn still_offered(error: StoreError) -> Problem {
    let mut problem = Problem::from(error);
    problem
        .detail
        .push_str("; the store may have taken it all the same, so look at the call before you repeat this");
    problem
}

/// One bounded question to the store.
pub(crate) async fn asked<T>(what: &str, reply: impl Future<Output = Result<T, StoreError>>) -> Answer<T> {
    match timeout(STORE_PATIENCE, reply).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Problem::no_answer(what, STORE_PATIENCE)),
    }
}
