//! Idempotency as a service: a store's steps over HTTP, for workers in any language.

pub(crate) mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use exactly::clock::millis;
use exactly::fingerprint::canonical_json;
use exactly::store::Reply;
use exactly::{Call, CallId, Fenced, Fingerprint, Scope, Token, Verdict};

use self::wire::{Applied, AppliedWord, Begin, Complete, Found, Held, Renew, claim};
use super::Admin;
use super::desk::asked;
use super::extract::{Asked, Id, Told};
use super::input::{Base64, HexBytes, keep};
use super::problem::{Answer, Problem};
use super::wire::claim_name;

/// Begin a call, or learn why not
///
/// Every answer of the protocol is a verdict with status 200. Repeat it with the same `token` after a lost reply.
#[utoipa::path(
    post,
    path = "/v1/calls/begin",
    tag = "calls as a service",
    operation_id = "beginCall",
    request_body = Begin,
    responses((status = 200, description = "The verdict", body = Found))
)]
pub(super) async fn begin(State(admin): State<Arc<Admin>>, Asked(begin): Asked<Begin>) -> Answer<Told<Found>> {
    let call = call(begin)?;
    let verdict = asked("begin record", admin.store.begin(&call)).await?;
    let id = call.id().to_string();
    Ok(Told(match verdict {
        Verdict::Run(claim) => Found::Run {
            id,
            token: HexBytes(*claim.token.as_bytes()).into(),
            attempt: claim.attempt.get(),
            lease_ms: millis(call.lease()),
        },
        Verdict::Replay(replay) => Found::Replay {
            id,
            outcome_base64: Base64(replay.outcome).into(),
            expires_in_ms: replay.expires_in.map(millis),
        },
        Verdict::InFlight { retry_after } => Found::InFlight {
            id,
            retry_after_ms: millis(retry_after),
        },
        Verdict::Mismatch { expires_in } => Found::Mismatch {
            id,
            expires_in_ms: expires_in.map(millis),
        },
        Verdict::InDoubt(claim) => Found::InDoubt {
            id,
            attempt: claim.attempt.get(),
            claim: claim_name(&claim).into(),
        },
    }))
}

/// Make the lease of a claim last longer
///
/// Also revives a claim whose lease ended, while nobody took over.
#[utoipa::path(
    post,
    path = "/v1/calls/{id}/renew",
    tag = "calls as a service",
    operation_id = "renewCall",
    request_body = Renew,
    responses((status = 200, description = "The lease starts anew", body = Applied))
)]
pub(super) async fn renew(
    State(admin): State<Arc<Admin>>,
    Id(id): Id,
    Asked(renew): Asked<Renew>,
) -> Answer<Told<Applied>> {
    let claim = claim(id, renew.token, renew.attempt);
    step(id, "renew lease", admin.store.renew(&claim, renew.lease_ms.duration())).await
}

/// Store the outcome of an effect that happened
///
/// Can be repeated with the same outcome, so a lost reply is not a lost write.
#[utoipa::path(
    post,
    path = "/v1/calls/{id}/complete",
    tag = "calls as a service",
    operation_id = "completeCall",
    request_body = Complete,
    responses((status = 200, description = "The outcome is stored", body = Applied))
)]
pub(super) async fn complete(
    State(admin): State<Arc<Admin>>,
    Id(id): Id,
    Asked(complete): Asked<Complete>,
) -> Answer<Told<Applied>> {
    let claim = claim(id, complete.token, complete.attempt);
    let outcome = complete.outcome_base64.0;
    step(
        id,
        "complete record",
        admin.store.complete(&claim, &outcome, keep(complete.keep_ms)),
    )
    .await
}

/// Free the key of an effect that did not happen
#[utoipa::path(
    post,
    path = "/v1/calls/{id}/abandon",
    tag = "calls as a service",
    operation_id = "abandonCall",
    request_body = Held,
    responses((status = 200, description = "The next begin runs", body = Applied))
)]
pub(super) async fn abandon(
    State(admin): State<Arc<Admin>>,
    Id(id): Id,
    Asked(held): Asked<Held>,
) -> Answer<Told<Applied>> {
    let claim = claim(id, held.token, held.attempt);
    step(id, "abandon record", admin.store.abandon(&claim)).await
}

/// Say that nobody knows whether an effect happened
///
/// Ends the lease at once. What follows is what `on_lost` said.
#[utoipa::path(
    post,
    path = "/v1/calls/{id}/lose",
    tag = "calls as a service",
    operation_id = "loseCall",
    request_body = Held,
    responses((status = 200, description = "The lease has ended", body = Applied))
)]
pub(super) async fn lose(
    State(admin): State<Arc<Admin>>,
    Id(id): Id,
    Asked(held): Asked<Held>,
) -> Answer<Told<Applied>> {
    let claim = claim(id, held.token, held.attempt);
    step(id, "lose record", admin.store.lose(&claim)).await
}

async fn step(id: CallId, what: &str, reply: Reply<'_, Fenced>) -> Answer<Told<Applied>> {
    match asked(what, reply).await? {
        Fenced::Applied => Ok(Told(Applied {
            id: id.to_string(),
            result: AppliedWord::Applied,
        })),
        Fenced::Superseded => {
            let why = "a newer attempt owns the call, or it was settled; nothing was changed, and what this attempt did \
                       is not its outcome";
            Err(Problem::superseded(&id, why))
        }
    }
}

fn call(begin: Begin) -> Answer<Call> {
    let fingerprint = match (&begin.fingerprint, &begin.content) {
        (Some(fingerprint), None) => Fingerprint::from_bytes(fingerprint.0),
        (None, Some(content)) => {
            let canonical = canonical_json(content.get().as_bytes());
            let why = "readers could disagree about it: a name stands twice in an object, or it nests too deep";
            Fingerprint::of(canonical.ok_or_else(|| Problem::invalid("content", why))?)
        }
        (None, None) => return Err(Problem::invalid("fingerprint", "give either fingerprint or content")),
        (Some(_), Some(_)) => return Err(Problem::invalid("content", "give either fingerprint or content")),
    };
    let operation = String::from(begin.operation);
    let scope = match begin.principal.map(String::from) {
        Some(principal) => Scope::new(principal, operation),
        None => Scope::global(operation),
    };
    let lease: Duration = begin.lease_ms.duration();
    let call = Call::new(scope, begin.key.key(), fingerprint)
        .with_lease(lease)
        .with_on_lost(begin.on_lost.into());
    Ok(match begin.token {
        Some(token) => call.with_token(Token::from_bytes(token.0)),
        None => call,
    })
}
