//! What axum handlers take and return.

use axum::extract::FromRequestParts;
use axum::response::{IntoResponseParts, ResponseParts};
use http::StatusCode;
use http::request::Parts;

use crate::layer::{CallInfo, NothingHappened};

impl<S: Sync> FromRequestParts<S> for CallInfo {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        let missing = "this handler needs an idempotency key: put an IdempotencyLayer that requires one in front of it";
        parts
            .extensions
            .get()
            .cloned()
            .ok_or((StatusCode::INTERNAL_SERVER_ERROR, missing))
    }
}

impl IntoResponseParts for NothingHappened {
    type Error = std::convert::Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Self::Error> {
        parts.extensions_mut().insert(self);
        Ok(parts)
    }
}
