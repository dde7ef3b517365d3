//! The kinds of problems, each with its status.

use http::StatusCode;

/// A kind of problem, in words.
pub(super) struct Kind {
    pub(super) status: StatusCode,
    pub(super) name: &'static str,
    pub(super) code: &'static str,
    pub(super) title: &'static str,
}

pub(super) const UNAUTHORIZED: Kind = Kind {
    status: StatusCode::UNAUTHORIZED,
    name: "unauthorized",
    code: "AUTH.token",
    title: "The token is missing or wrong",
};
pub(super) const NO_SUCH_PATH: Kind = Kind {
    status: StatusCode::NOT_FOUND,
    name: "no-such-path",
    code: "NOT_FOUND.path",
    title: "There is nothing at this path",
};
pub(super) const NO_SUCH_CALL: Kind = Kind {
    status: StatusCode::NOT_FOUND,
    name: "no-such-call",
    code: "NOT_FOUND.call",
    title: "There is no such call",
};
pub(super) const NO_SUCH_JOB: Kind = Kind {
    status: StatusCode::NOT_FOUND,
    name: "no-such-job",
    code: "NOT_FOUND.job",
    title: "There is no such job",
};
pub(super) const NO_SUCH_SCHEDULE: Kind = Kind {
    status: StatusCode::NOT_FOUND,
    name: "no-such-schedule",
    code: "NOT_FOUND.schedule",
    title: "There is no such schedule",
};
pub(super) const NO_JOBS: Kind = Kind {
    status: StatusCode::NOT_IMPLEMENTED,
    name: "no-jobs",
    code: "UNSUPPORTED.jobs",
    title: "There are no jobs here",
};
pub(super) const NO_SUCH_EVENT: Kind = Kind {
    status: StatusCode::NOT_FOUND,
    name: "no-such-event",
    code: "NOT_FOUND.event",
    title: "There is no such event",
};
pub(super) const NO_SUCH_ENDPOINT: Kind = Kind {
    status: StatusCode::NOT_FOUND,
    name: "no-such-endpoint",
    code: "NOT_FOUND.endpoint",
    title: "There is no such endpoint",
};
pub(super) const NO_SUCH_DELIVERY: Kind = Kind {
    status: StatusCode::NOT_FOUND,
    name: "no-such-delivery",
    code: "NOT_FOUND.delivery",
    title: "There is no such delivery",
};
pub(super) const OTHER_EVENT: Kind = Kind {
    status: StatusCode::CONFLICT,
    name: "event-mismatch",
    code: "CONFLICT.event.content",
    title: "The event was published with another content",
};
pub(super) const ENDPOINT_TAKEN: Kind = Kind {
    status: StatusCode::CONFLICT,
    name: "endpoint-taken",
    code: "CONFLICT.endpoint.taken",
    title: "There is an endpoint of this id",
};
pub(super) const ENDPOINT_CLOSED: Kind = Kind {
    status: StatusCode::CONFLICT,
    name: "endpoint-closed",
    code: "CONFLICT.endpoint.closed",
    title: "The endpoint gets nothing for now",
};
pub(super) const NO_SUCH_SOURCE: Kind = Kind {
    status: StatusCode::NOT_FOUND,
    name: "no-such-source",
    code: "NOT_FOUND.source",
    title: "There is no such source",
};
pub(super) const NO_SUCH_REPLAY: Kind = Kind {
    status: StatusCode::NOT_FOUND,
    name: "no-such-replay",
    code: "NOT_FOUND.replay",
    title: "There is no such replay",
};
pub(super) const REPLAY_TAKEN: Kind = Kind {
    status: StatusCode::CONFLICT,
    name: "replay-taken",
    code: "CONFLICT.replay.taken",
    title: "A replay of this id was started for something else",
};
pub(super) const NO_EVENTS: Kind = Kind {
    status: StatusCode::NOT_IMPLEMENTED,
    name: "no-events",
    code: "UNSUPPORTED.events",
    title: "There are no events here",
};
pub(super) const METHOD: Kind = Kind {
    status: StatusCode::METHOD_NOT_ALLOWED,
    name: "method-not-allowed",
    code: "VALIDATION.method",
    title: "The method does not fit the path",
};
pub(super) const UNREADABLE: Kind = Kind {
    status: StatusCode::BAD_REQUEST,
    name: "request-unreadable",
    code: "VALIDATION.syntax",
    title: "The request cannot be read",
};
pub(super) const BODY_LATE: Kind = Kind {
    status: StatusCode::REQUEST_TIMEOUT,
    name: "body-late",
    code: "VALIDATION.body_unreadable",
    title: "The request body did not arrive in time",
};
pub(super) const BODY_TOO_LARGE: Kind = Kind {
    status: StatusCode::PAYLOAD_TOO_LARGE,
    name: "body-too-large",
    code: "VALIDATION.body_too_large",
    title: "The request body is too large",
};
pub(super) const MEDIA_TYPE: Kind = Kind {
    status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
    name: "unsupported-media-type",
    code: "VALIDATION.media_type",
    title: "The request body is not JSON",
};
pub(super) const INVALID: Kind = Kind {
    status: StatusCode::UNPROCESSABLE_ENTITY,
    name: "request-invalid",
    code: "VALIDATION.request",
    title: "The request says something that cannot be",
};
pub(super) const NOT_IN_DOUBT: Kind = Kind {
    status: StatusCode::CONFLICT,
    name: "not-in-doubt",
    code: "CONFLICT.call.not_in_doubt",
    title: "The call is not in doubt",
};
pub(super) const IN_FLIGHT: Kind = Kind {
    status: StatusCode::CONFLICT,
    name: "in-flight",
    code: "CONFLICT.call.in_flight",
    title: "The call is in flight",
};
pub(super) const DELIVERY_UNDER_WAY: Kind = Kind {
    status: StatusCode::CONFLICT,
    name: "delivery-under-way",
    code: "CONFLICT.delivery.under_way",
    title: "Another copy of the delivery is under way",
};
pub(super) const OTHER_KIND: Kind = Kind {
    status: StatusCode::CONFLICT,
    name: "other-kind-of-outcome",
    code: "CONFLICT.call.kind",
    title: "The call has another kind of outcome",
};
pub(super) const SUPERSEDED: Kind = Kind {
    status: StatusCode::CONFLICT,
    name: "superseded",
    code: "CONFLICT.claim.superseded",
    title: "The claim owns the call no longer",
};
pub(super) const STORE_UNAVAILABLE: Kind = Kind {
    status: StatusCode::SERVICE_UNAVAILABLE,
    name: "store-unavailable",
    code: "DEPENDENCY.unavailable",
    title: "The store cannot answer",
};
pub(super) const BUSY: Kind = Kind {
    status: StatusCode::SERVICE_UNAVAILABLE,
    name: "busy",
    code: "RATE_LIMIT.exceeded",
    title: "Too many requests at once",
};
pub(super) const FAILED: Kind = Kind {
    status: StatusCode::INTERNAL_SERVER_ERROR,
    name: "failed",
    code: "INTERNAL",
    title: "The request failed",
};
