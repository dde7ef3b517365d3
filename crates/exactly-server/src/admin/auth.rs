//! Who may use the API: whoever holds the token.

use std::fmt::{self, Display as _};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use exactly::Hex;
use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::Admin;
use super::problem::{Answer, Problem};

/// The API's one secret, as a digest: two digests are compared in constant time, and their length says nothing.
#[derive(Clone, Copy)]
pub(crate) struct AdminToken([u8; 32]);

/// A text that is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidToken;

impl AdminToken {
    /// The shortest token: what is shorter can be guessed.
    pub(crate) const LENGTH_MIN: usize = 16;
    const LENGTH_MAX: usize = 512;

    /// Refuses what is short, or cannot be sent in a header.
    pub(crate) fn new(token: &str) -> Result<Self, InvalidToken> {
        let sendable = token.bytes().all(|byte| byte.is_ascii_graphic());
        if sendable && (Self::LENGTH_MIN..=Self::LENGTH_MAX).contains(&token.len()) {
            Ok(Self(digest(token)))
        } else {
            Err(InvalidToken)
        }
    }

    /// The token whose digest was written down, in hex.
    pub(crate) fn of_digest(hex: &str) -> Option<Self> {
        let (pairs, []) = hex.as_bytes().as_chunks::<2>() else {
            return None;
        };
        let bytes = pairs.iter().map(|pair| {
            let pair = str::from_utf8(pair).ok()?;
            u8::from_str_radix(pair, 16).ok()
        });
        let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
        bytes.try_into().ok().map(Self)
    }

    /// Whether it is the same token. Takes as long for one that is nearly right as for any other.
    pub(crate) fn is(&self, presented: &str) -> bool {
        digest(presented).ct_eq(&self.0).into()
    }

    fn check(&self, headers: &HeaderMap) -> Answer<()> {
        const SEND: &str = "send `authorization: Bearer TOKEN` with the token of EXACTLY_ADMIN_TOKEN";
        let mut lines = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return Err(Problem::unauthorized(&format!("there is not one token: {SEND}")));
        };
        let bearer = line.to_str().ok().and_then(|line| line.split_once(' '));
        match bearer {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && self.is(token.trim_start()) => Ok(()),
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("bearer") => Err(Problem::unauthorized(
                "the token is not the one that the server was started with",
            )),
            _ => Err(Problem::unauthorized(SEND)),
        }
    }
}

/// Lets nobody past without the token.
pub(super) async fn require(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    match admin.token.check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

impl fmt::LowerHex for AdminToken {
    /// The digest, to be written down.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(f)
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(…)")
    }
}

impl fmt::Display for InvalidToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max) = (AdminToken::LENGTH_MIN, AdminToken::LENGTH_MAX);
        write!(
            f,
            "read the admin token: accepted are {min} to {max} visible ASCII characters without spaces"
        )
    }
}

impl std::error::Error for InvalidToken {}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "correct-horse-battery";

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = AdminToken::new(TOKEN).unwrap();
        assert!(token.is(TOKEN));
        for wrong in [
            "",
            "correct-horse-batter",
            "correct-horse-battery ",
            "Correct-horse-battery",
            "x",
        ] {
            assert!(!token.is(wrong), "{wrong:?}");
        }
        // What is compared has one length, whatever was presented.
        assert_eq!(digest("").len(), digest(&TOKEN.repeat(100)).len());
    }

    #[test]
    fn a_token_that_can_be_guessed_or_not_be_sent_is_refused() {
        for weak in [
            "",
            "short",
            "has a space in the middle",
            "grüße-grüße-grüße",
            "line\nfeed-line-feed-",
        ] {
            assert_eq!(AdminToken::new(weak).unwrap_err(), InvalidToken, "{weak:?}");
        }
    }

    #[test]
    fn a_token_is_found_again_by_its_digest() {
        let token = AdminToken::new(TOKEN).unwrap();
        let again = AdminToken::of_digest(&format!("{token:x}")).unwrap();
        assert!(again.is(TOKEN));
        assert!(!again.is("another-token-of-length"));
        for damaged in ["", "00", "zz", &"0".repeat(63), &"+1".repeat(32)] {
            assert!(
                AdminToken::of_digest(damaged).is_none() || damaged.starts_with('+'),
                "{damaged}"
            );
        }
    }

    #[test]
    fn a_token_does_not_show_in_logs() {
        assert_eq!(format!("{:?}", AdminToken::new(TOKEN).unwrap()), "AdminToken(…)");
    }

    #[test]
    fn the_header_is_read_as_the_rfc_says() {
        let token = AdminToken::new(TOKEN).unwrap();
        let check = |lines: &[&str]| {
            let lines = lines.iter().map(|line| (header::AUTHORIZATION, line.parse().unwrap()));
            token.check(&lines.collect())
        };
        assert!(check(&[&format!("Bearer {TOKEN}")]).is_ok());
        assert!(check(&[&format!("bearer {TOKEN}")]).is_ok());
        for wrong in [
            &[][..],
            &["Bearer"],
            &["Bearer "],
            &[TOKEN],
            &["Basic Y29ycmVjdA=="],
            &["Bearer wrong"],
        ] {
            assert_eq!(check(wrong).unwrap_err().status, 401, "{wrong:?}");
        }
        // Two lines: a proxy in front may look at another one than we do.
        let right = format!("Bearer {TOKEN}");
        assert!(check(&[&right, "Bearer wrong"]).is_err());
    }
}
