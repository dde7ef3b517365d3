//! What operators are shown of events that came in, wherever they ask from.

use exactly::Hex;
use exactly::queue::{TaskFilter, TaskId};

use super::ask::{InboxQuery, SourceText, WhichBody};
use super::wire::{InboxDetail, InboxPage, ReceivedShown};
use crate::admin::desk::asked;
use crate::admin::events::desk::EventDesk;
use crate::admin::problem::{Answer, Problem};
use crate::config::is_source_name;
use crate::work::letter::{INBOX_KIND, QUARANTINE_KIND, lane_of};

impl EventDesk {
    pub(crate) async fn inbox(&self, query: &InboxQuery) -> Answer<InboxPage> {
        let kind = if query.quarantined { QUARANTINE_KIND } else { INBOX_KIND };
        let source = query.source.as_ref().map(SourceText::as_ref);
        if source.is_some_and(|name| !is_source_name(name)) {
            // Nobody is called that, so nothing came from them.
            return Ok(InboxPage {
                events: Vec::new(),
                next: None,
            });
        }
        let filter = TaskFilter {
            kind: Some(kind.to_owned()),
            lane: source.map(lane_of),
            state: query.state.map(Into::into),
            ..TaskFilter::default()
        };
        let shown = |view: &_| Some(ReceivedShown::of(view));
        let looked = self.look_through(&filter, query.after, query.limit, shown).await?;
        Ok(InboxPage {
            events: looked.found,
            next: looked.next,
        })
    }

    pub(crate) async fn received(&self, source: &str, event: &str, which: &WhichBody) -> Answer<InboxDetail> {
        let key = format!("{source} {event}");
        let id = match &which.digest {
            Some(digest) => TaskId::of(QUARANTINE_KIND, &format!("{key} {}", Hex(&digest.0))),
            None => TaskId::of(INBOX_KIND, &key),
        };
        let view = asked("read the event", self.queue().show(id)).await?;
        let view = view.ok_or_else(|| Problem::no_such_received(source, event))?;
        let attempts = asked("read its attempts", self.queue().attempts(id)).await?;
        Ok(InboxDetail::of(&view, &attempts))
    }
}
