//! Lanes that may not be what their endpoints say.

use super::courier::{buried, soon};
use super::{EndpointId, Endpoints};
use crate::queue::{End, FailureKind, Leased, Registry};
use crate::worker::{Handler, Ran, Run};

/// Makes an endpoint's lane what the endpoint says: after its rest, or because somebody may have been stopped half way.
#[derive(Debug)]
pub(super) struct Mend<Q: ?Sized>(pub(super) Endpoints<Q>);

impl<Q: Registry + ?Sized> Handler for Mend<Q> {
    fn run<'a>(&'a self, task: &'a Leased) -> Run<'a> {
        Box::pin(async move {
            let endpoint = std::str::from_utf8(&task.payload)
                .ok()
                .and_then(|id| EndpointId::new(id).ok());
            let Some(id) = endpoint else {
                return buried(FailureKind::Unreadable, "the payload names no endpoint".to_owned());
            };
            match self.0.mend_lane(&id).await {
                Ok(()) => Ran::End(End::Done("".into())),
                Err(error) => Ran::End(soon(&error.to_string())),
            }
        })
    }
}
