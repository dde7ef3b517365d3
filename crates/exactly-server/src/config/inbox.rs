//! Whose events come in, and where they go.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use exactly::webhook::delivery::Target;
use exactly::webhook::{Signer, Verifier};

use super::fault::Faults;
use super::secret::of_environment;
use super::table::Table;
use crate::listen::Style;

/// The longest name of a source, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// What a server that receives events goes by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inbox {
    /// Where senders come in. It is an address of its own: strangers reach it, and nothing else is there.
    pub(crate) listen: Option<SocketAddr>,
    /// Whose events are taken, by name.
    pub(crate) sources: BTreeMap<String, Source>,
}

/// Somebody who sends events.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// What tells theirs from others'.
    pub(crate) verifier: Verifier,
    /// The service that gets them.
    pub(crate) forward: Target,
    /// What tells the service that we pass them on, if it is to be told.
    pub(crate) sign: Option<Signer>,
}

impl Inbox {
    pub(super) fn of_table(mut table: Table<'_>, faults: &mut Faults<'_>) -> Self {
        let mut inbox = Self {
            listen: table.parsed("listen", "an address such as \"127.0.0.1:8082\"", faults),
            sources: BTreeMap::new(),
        };
        for (name, mut source) in table.named() {
            if !is_name(name) {
                let what =
                    format!("inbox.{name} is no name of a source: use 1 to {NAME_BYTES_MAX} of a-z, A-Z, 0-9, _ and -");
                source.refuse_whole(what, faults);
            }
            if let Some(read) = Source::of_table(name, &mut source, faults) {
                inbox.sources.insert(name.to_owned(), read);
            }
            source.finish(faults);
        }
        if inbox.listen.is_none() && !table.has("listen") {
            table.refuse_whole("inbox needs listen, the address at which senders come in", faults);
        }
        table.finish(faults);
        inbox
    }
}

impl Source {
    fn of_table(name: &str, table: &mut Table<'_>, faults: &mut Faults<'_>) -> Option<Self> {
        let styles = [
            ("standard", Style::Standard),
            ("stripe", Style::Stripe),
            ("github", Style::Github),
        ];
        let style = table.word("style", &styles, faults).unwrap_or_default();
        let secrets = table.secrets("secrets", faults);
        let accepted = "an http or https address";
        let forward = table.read("forward", accepted, faults, |value| value.as_str()?.parse().ok());
        let sign = sign(name, table, faults);
        let missing = ["secrets", "forward"].into_iter().filter(|key| !table.has(key));
        for key in missing {
            table.refuse_whole(format!("inbox.{name} needs {key}"), faults);
        }
        // Not the way in which other values are refused: these are not to be shown.
        let mut refuse = |what: String| table.refuse_hidden("secrets", format!("inbox.{name}.secrets: {what}"), faults);
        let read: Result<Vec<String>, String> = secrets?.iter().map(|secret| of_environment(secret)).collect();
        let verifier = read.and_then(|secrets| {
            if secrets.is_empty() {
                return Err("there are none, so nothing could be verified".to_owned());
            }
            let secrets = secrets.iter().map(String::as_str);
            style.verifier(secrets).map_err(|why| why.to_string())
        });
        match verifier {
            Ok(verifier) => Some(Self {
                verifier,
                forward: forward?,
                sign,
            }),
            Err(what) => {
                refuse(what);
                None
            }
        }
    }
}

/// What signs what is passed on, if anything.
fn sign(name: &str, table: &mut Table<'_>, faults: &mut Faults<'_>) -> Option<Signer> {
    let secret = table.secret("sign", faults)?;
    let signer = of_environment(&secret).and_then(|secret| secret.parse().map_err(|why| format!("{why}")));
    if let Err(what) = &signer {
        table.refuse_hidden("sign", format!("inbox.{name}.sign: {what}"), faults);
    }
    signer.ok()
}

pub(crate) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
}
