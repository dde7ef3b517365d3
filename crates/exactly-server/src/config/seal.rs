//! The keys that stored answers are encrypted with.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use exactly::layer::{KeyRing, Policy};
use sha2::{Digest as _, Sha256};

use super::fault::Faults;
use super::secret::of_environment;
use super::table::Table;

const KEY_LEN: usize = 32;
/// Stands before a key in what its id is the digest of, so that it is the digest of nothing else.
const ID_PREFIX: &[u8] = b"exactly seal key\0";

/// Who can read what is stored.
#[derive(Clone, Debug, Default)]
pub(super) struct Seal {
    keys: Option<Arc<KeyRing>>,
    /// Whether keys were named, good ones or not.
    is_said: bool,
    /// Whether any policy seals.
    is_used: bool,
}

impl Seal {
    pub(super) fn of_table(mut table: Table<'_>, faults: &mut Faults<'_>) -> Self {
        let mut seal = Self {
            is_said: true,
            ..Self::default()
        };
        let secrets = table.secrets("keys", faults);
        if !table.has("keys") {
            table.refuse_whole("seal needs keys, the first of which seals", faults);
        }
        if let Some(secrets) = secrets {
            match ring(&secrets) {
                Ok(keys) => seal.keys = Some(Arc::new(keys)),
                // Not the way in which other values are refused: these are not to be shown.
                Err(what) => table.refuse_hidden("keys", format!("seal.keys: {what}"), faults),
            }
        }
        table.finish(faults);
        seal
    }

    /// Whether `table` seals, if it begins with `default`. A preset has no say in it.
    pub(super) fn is_wanted(table: &mut Table<'_>, default: bool, faults: &mut Faults<'_>) -> bool {
        table.flag("sealed", faults).unwrap_or(default)
    }

    /// `policy`, sealed if that is `wanted` of `table`.
    pub(super) fn put_on(
        &mut self,
        policy: Policy,
        wanted: bool,
        table: &Table<'_>,
        faults: &mut Faults<'_>,
    ) -> Policy {
        self.is_used |= wanted;
        if wanted && !self.is_said {
            table.refuse_key("sealed", "true only with [seal], which has the keys", faults);
        }
        match &self.keys {
            Some(keys) if wanted => policy.sealed_by(Arc::clone(keys)),
            _ => policy,
        }
    }

    /// Says so if there are keys that nothing is sealed with.
    pub(super) fn refuse_idle(&self, root: &Table<'_>, faults: &mut Faults<'_>) {
        if self.is_said && !self.is_used {
            let what = "seal.keys seal nothing: set sealed = true under [defaults] or in a route";
            root.refuse_hidden("seal", what, faults);
        }
    }
}

/// The first key seals, all of them open.
fn ring(secrets: &[String]) -> Result<KeyRing, String> {
    let mut ring: Option<KeyRing> = None;
    let mut ids = Vec::new();
    for (index, secret) in secrets.iter().enumerate() {
        let key = of_environment(secret)
            .and_then(|secret| key(&secret))
            .map_err(|why| format!("[{index}]: {why}"))?;
        let id = id(&key);
        if let Some(first) = ids.iter().position(|other| *other == id) {
            return Err(format!("[{index}]: it is [{first}] again"));
        }
        ids.push(id);
        ring = Some(match ring {
            None => KeyRing::new(id, &key),
            Some(ring) => ring.with_retired(id, &key),
        });
    }
    ring.ok_or_else(|| "there are none, so nothing could be sealed".to_owned())
}

fn key(secret: &str) -> Result<[u8; KEY_LEN], String> {
    let bytes = hex(secret).or_else(|| STANDARD.decode(secret).ok());
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| {
        "accepted are 32 bytes in base64, as `openssl rand -base64 32` makes them, or 64 hex digits".to_owned()
    })
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.len() == 2 * KEY_LEN && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).ok();
    is_hex.then(|| (0..text.len()).step_by(2).map(byte).collect())?
}

/// What a key is known by beside what it sealed, wherever it stands in the list: a digest, which tells nothing of it.
fn id(key: &[u8; KEY_LEN]) -> u32 {
    let digest = Sha256::new().chain_update(ID_PREFIX).chain_update(key).finalize();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_32_bytes_in_base64_or_hex() {
        let bytes = [0xa7; KEY_LEN];
        let (base64, hex) = (STANDARD.encode(bytes), "A7".repeat(KEY_LEN));
        assert_eq!((key(&base64), key(&hex)), (Ok(bytes), Ok(bytes)));
        for wrong in ["", "hunter2", &base64[..40], &hex[..62], &format!("{hex}00")] {
            let told = key(wrong).unwrap_err();
            assert!(told.contains("32 bytes in base64"), "{told}");
        }
    }

    #[test]
    fn a_key_is_known_by_the_same_id_at_every_place() {
        let of = |secrets: &[&str]| ring(&secrets.iter().map(|secret| (*secret).to_owned()).collect::<Vec<_>>());
        let (one, two) = ("11".repeat(32), "22".repeat(32));
        let ids = |ring: &KeyRing| format!("{ring:?}");
        let (first, second) = (id(&[0x11; 32]), id(&[0x22; 32]));
        let rotated = ids(&of(&[&two, &one]).unwrap());
        assert!(
            rotated.contains(&format!("current: {second}")) && rotated.contains(&first.to_string()),
            "{rotated}"
        );
        assert!(of(&[&one, &two, &one]).unwrap_err().contains("[2]: it is [0] again"));
        assert!(of(&[]).unwrap_err().contains("there are none"));
        assert!(
            of(&["$EXACTLY_NO_SUCH_KEY"])
                .unwrap_err()
                .contains("[0]: EXACTLY_NO_SUCH_KEY is not in the environment")
        );
    }
}
