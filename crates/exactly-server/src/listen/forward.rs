//! Passing on what was verified.

use bytes::Bytes;
use exactly::webhook::delivery::{Destinations, InvalidSender, Parcel, Sender, Target};
use http::{HeaderMap, StatusCode, header};

/// Posts to one address, once each.
#[derive(Debug)]
pub(super) struct Forward {
    sender: Sender,
    target: Target,
}

impl Forward {
    /// Whoever sits at the terminal chose the address, so it may be anywhere near.
    pub(super) fn new(target: Target) -> Result<Self, InvalidSender> {
        let near = Destinations::default().allow_private();
        let sender = Sender::builder().destinations(near).build()?;
        Ok(Self { sender, target })
    }

    /// What the address answers; 502 if it does not.
    pub(super) async fn post(&self, headers: &HeaderMap, body: &Bytes) -> (StatusCode, Bytes) {
        let mut headers = headers.clone();
        // Of the connection that it came on.
        for name in [header::HOST, header::CONTENT_LENGTH, header::CONNECTION] {
            headers.remove(name);
        }
        let parcel = Parcel {
            url: &self.target,
            headers,
            body: body.clone(),
        };
        match self.sender.send(parcel).await.answer {
            Ok(answer) => (answer.status, answer.body),
            Err(fault) => {
                eprintln!("exactly: forward to {}: {fault}", self.target.origin());
                (StatusCode::BAD_GATEWAY, Bytes::new())
            }
        }
    }
}
