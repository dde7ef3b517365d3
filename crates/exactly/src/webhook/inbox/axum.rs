//! Inboxes as axum routes.

use axum::body::to_bytes;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::{Inbox, Receipt, Refused};
use crate::StoreError;
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
        let (parts, body) = request.into_parts();
        let Ok(body) = to_bytes(body, Self::BODY_BYTES_MAX).await else {
            return unread(Self::BODY_BYTES_MAX);
        };
        match self.receive(&parts.headers, body).await {
            Ok(receipt) => receipt.into_response(),
            Err(error) => unavailable(self.source(), &error),
        }
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
            Self::Rejected(refused) => refused.into_response(),
        };
        response.headers_mut().insert(RECEIPT, receipt);
        response
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, kind) = match &self {
            Self::Unverified(Rejected::Malformed { .. } | Rejected::NoEventId) | Self::Unusable(_) => {
                (StatusCode::BAD_REQUEST, &MALFORMED)
            }
            Self::Unverified(_) => (StatusCode::UNAUTHORIZED, &UNVERIFIED),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, &TOO_LARGE),
        };
        refusal(status, kind, &self.to_string())
    }
}

/// A body that is too long, or that did not come to its end: then nobody is there to be told.
fn unread(most: usize) -> Response {
    let detail = format!("receive event: the body could not be read; {most} bytes are the most");
    let mut response = refusal(StatusCode::PAYLOAD_TOO_LARGE, &TOO_LARGE, &detail);
    response
        .headers_mut()
        .insert(RECEIPT, HeaderValue::from_static("rejected"));
    response
}

/// Whatever happened, the event that is sent again finds out. Why it failed is not the sender's business.
fn unavailable(source: &str, error: &StoreError) -> Response {
    tracing::warn!(source, %error, "event not received");
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
