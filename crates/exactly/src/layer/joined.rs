//! Calls that an upstream completes in its own transaction.
//!
//! The record of a [`Joined`](Guarantee::Joined) call is in the upstream's database, and the upstream completes it in the
//! transaction that makes the effect. So whoever gives the claim up learns what came of it: if that is applied, the
//! upstream is fenced out and can never commit; if it is superseded, the upstream has committed and its answer is stored.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response};

use super::body::Body;
use super::exchange::Came;
use super::fate::Fate;
use super::policy::Policy;
use super::problem::Refusal;
use super::{CallInfo, Guarantee, Shared, log};
use crate::digest::Hex;
use crate::once::Ending;
use crate::{Call, Claim, Fenced, Keep, Verdict, telemetry};

/// Tells an upstream which call it carries out: 64 hex digits.
pub const EXACTLY_CALL: HeaderName = HeaderName::from_static("exactly-call");
/// Tells an upstream the fence to complete its call with: 32 hex digits. Whoever knows it can complete the call.
pub const EXACTLY_TOKEN: HeaderName = HeaderName::from_static("exactly-token");
/// Tells an upstream how long its answer is to be kept: in seconds, or `forever`.
pub const EXACTLY_KEEP: HeaderName = HeaderName::from_static("exactly-keep");

impl CallInfo {
    /// What an upstream has to be told to complete the call in its own transaction. Empty unless the route is
    /// [`Joined`](Guarantee::Joined). Take away what a client sent under these names.
    pub fn join_headers(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<> {
        let headers = self.joined.map(|keep| {
            let text = |text: String| HeaderValue::try_from(text).expect("letters and digits are a header");
            let mut token = text(Hex(self.claim.token.as_bytes()).to_string());
            token.set_sensitive(true);
            [
                (EXACTLY_CALL, text(self.claim.id.to_string())),
                (EXACTLY_TOKEN, token),
                (EXACTLY_KEEP, text(seconds(keep))),
            ]
        });
        headers.into_iter().flatten()
    }
}

/// Rounded up, so that nothing is forgotten early.
fn seconds(keep: Keep) -> String {
    match keep {
        Keep::For(keep) => (keep.as_secs() + u64::from(keep.subsec_nanos() > 0)).to_string(),
        Keep::Forever => "forever".to_owned(),
    }
}

impl Shared {
    /// The answer to a joined call, whatever came of asking its upstream.
    pub(super) async fn end_joined<E>(
        &self,
        policy: &Policy,
        call: &Call,
        claim: &Claim,
        came: Came<E>,
    ) -> Result<Response<Body>, E> {
        let outcome: Option<Bytes> = match &came {
            Came::Answer(answer) if answer.fate(Guarantee::Joined) == Fate::Store => {
                Some(answer.encode(policy, call.id()))
            }
            _ => None,
        };
        let happened = outcome.is_some();
        let ending = outcome.map_or(Ending::DidNotHappen, Ending::Happened);
        match self.once.settle(claim, ending, policy.keep).await {
            Ok(Fenced::Applied) => {
                let to = if happened { "done" } else { "absent" };
                let status = match &came {
                    Came::Answer(answer) => Some(answer.parts.status),
                    _ => None,
                };
                log::moved(call, claim.attempt, "in flight", to, status);
                match came {
                    Came::Answer(answer) if happened => Ok(answer.stored(policy)),
                    Came::Answer(answer) => Ok(answer.freed()),
                    Came::Failed(error) => {
                        telemetry::count(telemetry::FREED);
                        Err(error)
                    }
                    Came::Broke | Came::Unknown => {
                        telemetry::count(telemetry::FREED);
                        Ok(self.refuse_keyed(policy, call, Refusal::FencedOut, None))
                    }
                }
            }
            Ok(Fenced::Superseded) => Ok(self.after_join(policy, call, came).await),
            // The store is still being told, and whoever asks again learns what came of it.
            Err(_) => Ok(self.refuse_keyed(policy, call, Refusal::Unsettled, None)),
        }
    }

    /// The claim is superseded: by the upstream itself, as a rule. What it stored is what every caller is told.
    async fn after_join<E>(&self, policy: &Policy, call: &Call, came: Came<E>) -> Response<Body> {
        match self.once.peek(call).await {
            Ok(Some(Verdict::Replay(replay))) => {
                let answer = match came {
                    Came::Answer(answer) => Some(answer),
                    _ => None,
                };
                self.stored_by_upstream(policy, call, replay, answer)
            }
            // A later attempt has the call, so this one did not commit.
            Ok(Some(verdict)) => self.told(policy, call, verdict),
            Ok(None) | Err(_) => self.refuse_keyed(policy, call, Refusal::Unsettled, None),
        }
    }
}
