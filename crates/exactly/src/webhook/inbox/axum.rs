//! Inboxes as axum routes, and events as arguments of axum handlers.

use axum::body::to_bytes;
use axum::extract::{FromRef, FromRequest, Request};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::{Inbox, Incoming, NotReceived, Receipt, Refused};
use crate::layer::Problem;
use crate::queue::TransactionalQueue;
use crate::webhook::Rejected;

/// Tells senders, and whoever looks at their logs, what became of an event.
const RECEIPT: HeaderName = HeaderName::from_static("webhook-receipt");

/// When a sender that has no plan of its own is to try again, in seconds.
const RETRY_AFTER: u64 = 5;

impl<Q: TransactionalQueue> Inbox<Q> {
    /// What answers POST requests with [receipts](Receipt).
    ///
    /// It reads the body itself, at most [so much](Self::BODY_BYTES_MAX) of it, because a signature is over the bytes as they
    /// came. No transaction is open before all of them are there.
    ///
    /// ```
    /// # use exactly::queue::TransactionalQueue;
    /// # use exactly::webhook::Inbox;
    /// fn routes<Q: TransactionalQueue>(payments: &Inbox<Q>) -> axum::Router {
    ///     axum::Router::new().route("/hooks/payments", payments.route())
    /// }
    /// ```
    pub fn route<S: Clone + Send + Sync + 'static>(&self) -> MethodRouter<S> {
        let inbox = self.clone();
        post(move |request: Request| {
            let inbox = inbox.clone();
            async move { inbox.respond(request).await }
        })
    }

    async fn respond(&self, request: Request) -> Response {
        match self.read(request).await {
            Ok(incoming) => incoming.apply().await.into_response(),
            Err(refused) => refused.into_response(),
        }
    }

    /// Reads no more of a body than an event may have.
    async fn read(&self, request: Request) -> Result<Incoming<Q>, Refused> {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, Self::BODY_BYTES_MAX).await;
        self.verify(&parts.headers, body.map_err(|_| Refused::Unread)?)
    }
}

/// For handlers of a router of your own that have more to say than [`Inbox::route`] does.
///
/// The inbox is the state of the route, or a part of it by `FromRef`; where there are several, give each route its own. The body
/// is read here, as the bytes that were signed: the extractor comes last among a handler's arguments, and no layer in front may
/// change a body. What is not the sender's is [refused](Refused) and never gets to the handler.
///
/// It verifies, and no more than that: [`apply`](Incoming::apply) is what tells a duplicate.
///
/// ```
/// use axum::http::StatusCode;
/// use axum::response::{IntoResponse as _, Response};
/// use axum::routing::post;
/// use exactly::queue::TransactionalQueue;
/// use exactly::webhook::{Inbox, Incoming};
///
/// fn routes<Q: TransactionalQueue>(payments: Inbox<Q>) -> axum::Router {
///     axum::Router::new().route("/hooks/payments", post(payment::<Q>).with_state(payments))
/// }
///
/// async fn payment<Q: TransactionalQueue>(incoming: Incoming<Q>) -> Response {
///     // Not a success, so its sender keeps it.
///     if is_down_for_repairs() {
///         return StatusCode::SERVICE_UNAVAILABLE.into_response();
///     }
///     tracing::info!(bytes = incoming.event().body().len(), "payment event");
///     incoming.apply().await.into_response()
/// }
/// # fn is_down_for_repairs() -> bool { false }
/// ```
impl<S, Q> FromRequest<S> for Incoming<Q>
where
    S: Send + Sync,
    Q: TransactionalQueue,
    Inbox<Q>: FromRef<S>,
{
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        Inbox::from_ref(state).read(request).await
    }
}

impl IntoResponse for Receipt {
    fn into_response(self) -> Response {
        let receipt = HeaderValue::from_static(self.as_str());
        let mut response = match self {
            Self::Applied | Self::Duplicate | Self::Stale => StatusCode::OK.into_response(),
            // It has not happened, and it is not the sender's any more.
            Self::Deferred | Self::Parked => StatusCode::ACCEPTED.into_response(),
            Self::Quarantined => refusal(
                StatusCode::CONFLICT,
                &OTHER_BODY,
                "an event of this id was received before with another body; this one is kept for people to look at, and was not applied",
            ),
            Self::Rejected(refused) => return refused.into_response(),
        };
        response.headers_mut().insert(RECEIPT, receipt);
        response
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, kind) = match &self {
            Self::Unverified(Rejected::Malformed { .. } | Rejected::NoEventId)
            | Self::HeadTooLarge { .. }
            | Self::Unusable(_) => (StatusCode::BAD_REQUEST, &MALFORMED),
            Self::Unverified(_) => (StatusCode::UNAUTHORIZED, &UNVERIFIED),
            // Of a body that broke off nobody is there to be told.
            Self::TooLarge { .. } | Self::Unread => (StatusCode::PAYLOAD_TOO_LARGE, &TOO_LARGE),
        };
        let mut response = refusal(status, kind, &self.to_string());
        let rejected = HeaderValue::from_static("rejected");
        response.headers_mut().insert(RECEIPT, rejected);
        response
    }
}

impl IntoResponse for NotReceived {
    /// Why it failed is not the sender's business, so it is logged here.
    fn into_response(self) -> Response {
        tracing::warn!(error = %self, "event not received");
        let mut problem = UNAVAILABLE.at(
            StatusCode::SERVICE_UNAVAILABLE,
            "the event was not received; send it again",
        );
        (problem.retryable, problem.retry_after) = (true, Some(RETRY_AFTER));
        let mut response = problem.to_response().map(axum::body::Body::new);
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER));
        response
    }
}

fn refusal(status: StatusCode, kind: &Kind, detail: &str) -> Response {
    kind.at(status, detail).to_response().map(axum::body::Body::new)
}

/// A kind of problem, in words.
struct Kind {
    urn: &'static str,
    code: &'static str,
    title: &'static str,
}

const UNVERIFIED: Kind = Kind {
    urn: "urn:exactly:problem:event-unverified",
    code: "AUTH.webhook_signature",
    title: "The event could not be verified",
};
const MALFORMED: Kind = Kind {
    urn: "urn:exactly:problem:event-malformed",
    code: "VALIDATION.webhook",
    title: "The request is no event",
};
const TOO_LARGE: Kind = Kind {
    urn: "urn:exactly:problem:event-too-large",
    code: "VALIDATION.body_too_large",
    title: "The event is too large",
};
const OTHER_BODY: Kind = Kind {
    urn: "urn:exactly:problem:event-mismatch",
    code: "CONFLICT.idempotency.payload_mismatch",
    title: "The id was used for another event",
};
const UNAVAILABLE: Kind = Kind {
    urn: "urn:exactly:problem:store-unavailable",
    code: "DEPENDENCY.unavailable",
    title: "The store cannot answer",
};

impl Kind {
    fn at(&self, status: StatusCode, detail: &str) -> Problem {
        Problem {
            kind: self.urn,
            title: self.title,
            status,
            code: self.code,
            detail: detail.to_owned(),
            retryable: false,
            retry_after: None,
            call: None,
            settle: None,
            answered_status: None,
        }
    }
}
