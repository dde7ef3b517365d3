//! Who sends a request, as far as a gateway can tell: whoever holds the same credentials.

use exactly::Hex;
use exactly::layer::Principal;
use http::request::Parts;
use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};

use crate::config::Credentials;

/// The caller behind a request. Requests with different credentials are different callers; without any credentials, all
/// are one and the same: nobody in particular.
pub(super) fn principal(credentials: &Credentials, parts: &Parts) -> Principal {
    let mut hash = Sha256::new();
    hash.update(b"exactly/credentials/v1");
    for name in &credentials.headers {
        part(&mut hash, name.as_str().as_bytes());
        let lines: Vec<_> = parts.headers.get_all(name).iter().collect();
        count(&mut hash, lines.len());
        for line in lines {
            part(&mut hash, line.as_bytes());
        }
    }
    for name in &credentials.cookies {
        part(&mut hash, name.as_bytes());
        let values = cookies(&parts.headers, name);
        count(&mut hash, values.len());
        for value in values {
            part(&mut hash, value);
        }
    }
    let digest: [u8; 32] = hash.finalize().into();
    Principal::new(Hex(&digest).to_string())
}

fn part(hash: &mut Sha256, bytes: &[u8]) {
    count(hash, bytes.len());
    hash.update(bytes);
}

fn count(hash: &mut Sha256, count: usize) {
    hash.update((count as u64).to_be_bytes());
}

/// Every value of the cookie `name`, in the order in which they were sent.
fn cookies<'h>(headers: &'h HeaderMap, name: &str) -> Vec<&'h [u8]> {
    let lines = headers.get_all(header::COOKIE).iter().map(http::HeaderValue::as_bytes);
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    pairs
        .filter_map(|pair| {
            let pair = pair.trim_ascii();
            let rest = pair.strip_prefix(name.as_bytes())?;
            rest.strip_prefix(b"=")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn of(credentials: &Credentials, headers: &[(&str, &str)]) -> Principal {
        let request = headers.iter().fold(Request::post("/"), |request, (name, value)| {
            request.header(*name, *value)
        });
        principal(credentials, &request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn different_credentials_are_different_callers() {
        let credentials = Credentials {
            headers: vec![header::AUTHORIZATION, header::HeaderName::from_static("x-api-key")],
            cookies: vec!["session".to_owned()],
            global: false,
        };
        let callers: [&[(&str, &str)]; 9] = [
            &[],
            &[("authorization", "")],
            &[("authorization", "Bearer ada")],
            &[("authorization", "Bearer bob")],
            &[("x-api-key", "Bearer ada")],
            &[("authorization", "Bearer ada"), ("authorization", "Bearer bob")],
            &[("cookie", "session=1")],
            &[("cookie", "session=2")],
            &[("cookie", "session=1; session=2")],
        ];
        for (at, one) in callers.iter().enumerate() {
            for (other_at, other) in callers.iter().enumerate() {
                let same = of(&credentials, one) == of(&credentials, other);
                assert_eq!(same, at == other_at, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn what_is_no_credential_does_not_count() {
        let credentials = Credentials {
            cookies: vec!["session".to_owned()],
            ..Credentials::default()
        };
        let one = of(
            &credentials,
            &[("cookie", "theme=dark; session=1"), ("user-agent", "a")],
        );
        let other = of(
            &credentials,
            &[("cookie", "session=1;theme=light; xsession=9"), ("user-agent", "b")],
        );
        assert!(one == other);
    }
}
