//! What one attempt puts on the wire.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::Endpoint;
use crate::clock::{Clock, WallClock};
use crate::webhook::delivery::{CustomHeaders, Parcel, Target};
use crate::webhook::{EventId, ID_HEADER, SIGNATURE_HEADER, Signer, TIMESTAMP_HEADER, sign};

/// What is sent in one attempt, with its signature.
#[derive(Debug)]
pub(super) struct Letter {
    target: Target,
    headers: HeaderMap,
}

impl Letter {
    pub(super) fn new(event: &EventId, endpoint: &Endpoint, body: &Bytes) -> Result<Self, String> {
        let now = WallClock.now();
        let target: Target = endpoint.url.parse().map_err(|error| format!("{error}"))?;
        let signers = endpoint
            .signs_with(now)
            .map(str::parse::<Signer>)
            .collect::<Result<Vec<_>, _>>();
        let signers = signers.map_err(|error| error.to_string())?;
        if signers.is_empty() {
            return Err("every secret of the endpoint has run out; add one".to_owned());
        }
        let custom = endpoint
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let custom = CustomHeaders::new(custom).map_err(|error| error.to_string())?;
        let mut headers = HeaderMap::new();
        custom.add_to(&mut headers);
        let visible = |text: String| HeaderValue::from_str(&text).map_err(|error| error.to_string());
        headers.insert(ID_HEADER, visible(event.to_string())?);
        headers.insert(TIMESTAMP_HEADER, visible((now.as_millis() / 1000).to_string())?);
        headers.insert(SIGNATURE_HEADER, visible(sign(&signers, event, now, body))?);
        Ok(Self { target, headers })
    }

    pub(super) fn parcel<'a>(&'a self, body: &Bytes) -> Parcel<'a> {
        Parcel {
            url: &self.target,
            headers: self.headers.clone(),
            body: body.clone(),
        }
    }
}
