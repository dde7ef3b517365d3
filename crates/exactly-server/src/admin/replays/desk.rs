//! What operators do about replays, wherever they ask from.

use std::sync::Arc;

use exactly::clock::Timestamp;
use exactly::webhook::{Replay, ReplayError, ReplayId, ReplayView, Replays, Which};
use tokio::time::timeout;

use super::ask::{NewReplay, ReplaysQuery};
use super::wire::{ReplayPage, ReplayShown};
use crate::admin::desk::audit::Deed;
use crate::admin::desk::{LIMIT_DEFAULT, STORE_PATIENCE};
use crate::admin::endpoints::desk::kept;
use crate::admin::events::desk::EventDesk;
use crate::admin::input::{Actor, Limit, rfc3339};
use crate::admin::problem::{Answer, Problem};
use crate::admin::schedules::ask::Because;
use crate::store::Ledger;

/// What is done to a replay by one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayAction {
    Pause,
    Resume,
    Cancel,
}

impl ReplayAction {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
        }
    }
}

/// A replay that goes on, whoever has started it.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) replay: ReplayShown,
    /// Whether nobody had started it before.
    pub(crate) is_new: bool,
}

impl EventDesk {
    pub(crate) fn replaying(&self) -> Replays<dyn Ledger> {
        Replays::new(Arc::clone(self.queue()))
    }

    pub(crate) async fn replays(&self, query: &ReplaysQuery) -> Answer<ReplayPage> {
        let all = changed("list replays", self.replaying().list()).await?;
        let after = query.after.as_ref().map_or("", AsRef::as_ref);
        let limit = usize::try_from(query.limit.map_or(LIMIT_DEFAULT, Limit::get)).unwrap_or(usize::MAX);
        let mut rest = all.iter().filter(|view| view.replay.id.as_str() > after);
        let replays: Vec<ReplayShown> = rest.by_ref().take(limit).map(Into::into).collect();
        let next = rest.next().and(replays.last()).map(|last| last.id.clone());
        Ok(ReplayPage { replays, next })
    }

    pub(crate) async fn replay(&self, id: &ReplayId) -> Answer<ReplayShown> {
        let view = changed("read the replay", self.replaying().get(id)).await?;
        let view = view.ok_or_else(|| Problem::no_such_replay(id.as_str()))?;
        Ok((&view).into())
    }

    pub(crate) async fn start_replay(&self, asked: NewReplay, actor: &Actor) -> Answer<Started> {
        let replay = asked.read()?;
        let detail = format!("start replay {} of {}", replay.id, in_words(&replay));
        let deed = Deed::new(actor, "replay", None, detail).because(asked.reason.as_ref());
        let replays = self.replaying();
        let act = async {
            let found = changed("read the replay", replays.get(&replay.id)).await?;
            if found.is_none() {
                self.check_endpoint(&replay).await?;
            }
            let view = changed("start the replay", replays.start(&replay)).await?;
            Ok(Started {
                replay: (&view).into(),
                is_new: found.is_none(),
            })
        };
        let told = |started: &Started| match (&started.replay.warning, started.is_new) {
            (Some(warning), true) => format!("started; {warning}"),
            (None, true) => "started".to_owned(),
            (_, false) => "it was started before".to_owned(),
        };
        self.desk().audited(deed, act, told).await
    }

    /// A replay to nobody would end at once, and look as if there were nothing to send. One that is there goes on, whatever
    /// has become of its endpoint.
    async fn check_endpoint(&self, replay: &Replay) -> Answer<()> {
        let Some(id) = &replay.endpoint else {
            return Ok(());
        };
        match kept("read the endpoint", self.endpoints().get(id)).await? {
            Some(_) => Ok(()),
            None => Err(Problem::invalid("endpoint", format!("no endpoint has the id {id}"))),
        }
    }

    pub(crate) async fn act_on_replay(
        &self,
        id: &ReplayId,
        action: ReplayAction,
        because: &Because,
        actor: &Actor,
    ) -> Answer<ReplayShown> {
        let detail = format!("{} replay {id}", action.word());
        let deed = Deed::new(actor, "replay", None, detail).because(because.reason.as_ref());
        let replays = self.replaying();
        let act = async {
            let view: ReplayView = match action {
                ReplayAction::Pause => changed("pause the replay", replays.pause(id)).await?,
                ReplayAction::Resume => changed("resume the replay", replays.resume(id)).await?,
                ReplayAction::Cancel => changed("give up the replay", replays.cancel(id)).await?,
            };
            Ok(ReplayShown::from(&view))
        };
        let told = |shown: &ReplayShown| format!("it is {} after {}", shown.state.word(), shown.progress.seen);
        self.desk().audited(deed, act, told).await
    }
}

/// Which deliveries are meant.
fn in_words(replay: &Replay) -> String {
    let mut words = match replay.which {
        Which::Failed => "what failed".to_owned(),
        Which::All => "all".to_owned(),
    };
    let mut add = |name: &str, value: String| {
        words.push_str(", ");
        words.push_str(name);
        words.push(' ');
        words.push_str(&value);
    };
    if let Some(event) = &replay.event {
        add("event", event.to_string());
    }
    if let Some(endpoint) = &replay.endpoint {
        add("endpoint", endpoint.to_string());
    }
    for filter in &replay.types {
        add("type", filter.to_string());
    }
    if let Some(since) = replay.since_ms {
        add("since", rfc3339(Timestamp::from_millis(since)));
    }
    if let Some(until) = replay.until_ms {
        add("until", rfc3339(Timestamp::from_millis(until)));
    }
    if let Some(per_second) = replay.per_second {
        add("per second", per_second.to_string());
    }
    if replay.dry_run {
        words.push_str(", as a dry run");
    }
    words
}

/// One bounded change of what is kept.
pub(crate) async fn changed<T>(what: &str, change: impl Future<Output = Result<T, ReplayError>>) -> Answer<T> {
    match timeout(STORE_PATIENCE, change).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(refused(error)),
        Err(_) => Err(Problem::no_answer(what, STORE_PATIENCE)),
    }
}

fn refused(error: ReplayError) -> Problem {
    match error {
        ReplayError::Invalid(why) => Problem::invalid("replay", why),
        ReplayError::Gone(id) => Problem::no_such_replay(id.as_str()),
        ReplayError::Store(error) => error.into(),
        ReplayError::Taken(_) => Problem::replay_taken(error),
        other => Problem::contended(other),
    }
}
