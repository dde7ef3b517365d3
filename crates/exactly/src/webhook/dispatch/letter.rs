//! What one attempt puts on the wire.

use std::sync::OnceLock;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::Endpoint;
use crate::clock::{Clock, Timestamp, WallClock};
use crate::webhook::delivery::{CustomHeaders, Parcel, Target};
use crate::webhook::{EventId, ID_HEADER, SIGNATURE_HEADER, Signer, TIMESTAMP_HEADER, sign};

/// How many headers are added to those of the endpoint's owner, here and by whoever sends.
const OURS_MAX: usize = 8;

/// An endpoint, and what letters to it have in common: read for the first one, and not for each.
#[derive(Debug)]
pub(super) struct Addressee {
    pub(super) endpoint: Endpoint,
    address: OnceLock<Result<Address, String>>,
}

#[derive(Debug)]
struct Address {
    target: Target,
    /// Those of the endpoint's owner.
    headers: HeaderMap,
    /// What each of the endpoint's secrets is. Of one that has run out it does not matter if it can be read.
    signers: Vec<Result<Signer, String>>,
}

/// What is sent in one attempt, with its signature.
#[derive(Debug)]
pub(super) struct Letter<'a> {
    target: &'a Target,
    headers: HeaderMap,
}

impl Addressee {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            address: OnceLock::new(),
        }
    }

    /// A letter of this event, signed now.
    pub(super) fn letter(&self, event: &EventId, body: &Bytes) -> Result<Letter<'_>, String> {
        const ID: HeaderName = HeaderName::from_static(ID_HEADER);
        const TIMESTAMP: HeaderName = HeaderName::from_static(TIMESTAMP_HEADER);
        const SIGNATURE: HeaderName = HeaderName::from_static(SIGNATURE_HEADER);

        let now = WallClock.now();
        let address = self.address.get_or_init(|| Address::of(&self.endpoint));
        let address = address.as_ref().map_err(Clone::clone)?;
        let signature = sign(self.signers(address, now)?, event, now, body);
        let visible = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
        let mut headers = address.headers.clone();
        headers.reserve(OURS_MAX);
        headers.insert(ID, visible(event.as_str())?);
        headers.insert(TIMESTAMP, visible(&(now.as_millis() / 1000).to_string())?);
        headers.insert(SIGNATURE, visible(&signature)?);
        Ok(Letter {
            target: &address.target,
            headers,
        })
    }

    /// What signs at this moment.
    fn signers<'a>(&self, address: &'a Address, now: Timestamp) -> Result<Vec<&'a Signer>, String> {
        let secrets = self.endpoint.secrets.iter().zip(&address.signers);
        let valid = secrets.filter(|(secret, _)| secret.signs_at(now));
        let signers = valid.map(|(_, signer)| signer.as_ref().map_err(Clone::clone));
        let signers = signers.collect::<Result<Vec<_>, _>>()?;
        if signers.is_empty() {
            return Err("every secret of the endpoint has run out; add one".to_owned());
        }
        Ok(signers)
    }
}

impl Address {
    fn of(endpoint: &Endpoint) -> Result<Self, String> {
        let custom = endpoint
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let custom = CustomHeaders::new(custom).map_err(|error| error.to_string())?;
        let mut headers = HeaderMap::new();
        custom.add_to(&mut headers);
        let signers = endpoint.secrets.iter().map(|secret| {
            let signer = secret.secret.parse::<Signer>();
            signer.map_err(|error| error.to_string())
        });
        Ok(Self {
            target: endpoint.url.parse().map_err(|error| format!("{error}"))?,
            headers,
            signers: signers.collect(),
        })
    }
}

impl<'a> Letter<'a> {
    pub(super) fn parcel(self, body: &Bytes) -> Parcel<'a> {
        Parcel {
            url: self.target,
            headers: self.headers,
            body: body.clone(),
        }
    }
}
