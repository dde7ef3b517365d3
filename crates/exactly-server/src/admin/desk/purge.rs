//! Forgetting finished records before their retention ends.

use std::sync::Arc;

use exactly::store::{Filter, Page, Phase};
use exactly::{Claim, Fenced, Operate};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::audit::Deed;
use super::{Desk, asked};
use crate::admin::ask::Purge;
use crate::admin::input::{Actor, IdText, Limit, rfc3339};
use crate::admin::problem::{Answer, Problem};
use crate::admin::wire::Purged;

/// How many records are forgotten at one time: enough to share commits, too few to stand in the way of calls.
const AT_ONCE: usize = 32;

impl Desk {
    /// Counts the records that fit, and forgets them unless it is a dry run. What is gone already does not count, so it
    /// can be repeated.
    pub(crate) async fn purge(&self, wanted: &Purge, actor: &Actor) -> Answer<Purged> {
        let named = wanted.operation.is_some() || wanted.principal.is_some() || wanted.created_before.is_some();
        if !named && !wanted.all {
            let why = "say which records: by operation, principal or created_before, or else all = true";
            return Err(Problem::invalid("all", why));
        }
        if wanted.dry_run {
            return Ok(told(&self.fitting(wanted).await?, wanted, 0));
        }
        let deed = Deed::new(actor, "purge", None, in_words(wanted)).because(wanted.reason.as_ref());
        let told = |purged: &Purged| format!("forgot {} of {} records", purged.purged, purged.matched);
        self.audited(deed, self.forget_fitting(wanted), told).await
    }

    async fn forget_fitting(&self, wanted: &Purge) -> Answer<Purged> {
        let page = self.fitting(wanted).await?;
        let claims: Vec<Claim> = page.calls.iter().map(|view| view.claim.clone()).collect();
        let forgetting = claims.into_iter().map(|claim| forget(Arc::clone(&self.store), claim));
        let forgotten: Vec<Fenced> = stream::iter(forgetting).buffer_unordered(AT_ONCE).try_collect().await?;
        let purged = forgotten.iter().filter(|fenced| **fenced == Fenced::Applied).count();
        Ok(told(&page, wanted, purged))
    }

    async fn fitting(&self, wanted: &Purge) -> Answer<Page> {
        let filter = Filter {
            phase: Some(Phase::Done),
            operation: wanted.operation.as_ref().map(|text| text.as_ref().to_owned()),
            principal: wanted.principal.as_ref().map(|text| text.as_ref().to_owned()),
            created_before: wanted.created_before.map(|at| at.0),
            after: wanted.after.map(IdText::id),
            limit: wanted.limit.map_or(Filter::LIMIT_MAX, Limit::get),
        };
        asked("list records", self.store.list(&filter)).await
    }
}

async fn forget(store: Arc<dyn Operate>, claim: Claim) -> Answer<Fenced> {
    asked("forget record", store.forget(&claim)).await
}

fn told(page: &Page, wanted: &Purge, purged: usize) -> Purged {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Purged {
        dry_run: wanted.dry_run,
        matched: count(page.calls.len()),
        purged: count(purged),
        ids: page.calls.iter().map(|view| view.claim.id.to_string()).collect(),
        next: page.next.map(|id| id.to_string()),
    }
}

fn in_words(wanted: &Purge) -> String {
    let mut words = vec!["forget finished records".to_owned()];
    words.extend(
        wanted
            .operation
            .as_ref()
            .map(|text| format!("of operation {:?}", text.as_ref())),
    );
    words.extend(
        wanted
            .principal
            .as_ref()
            .map(|text| format!("of principal {:?}", text.as_ref())),
    );
    words.extend(
        wanted
            .created_before
            .map(|at| format!("begun before {}", rfc3339(at.0))),
    );
    words.join(", ")
}
