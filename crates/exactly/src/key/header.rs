//! Keys as an HTTP header carries them.

use std::borrow::Cow;
use std::convert::Infallible;

use sfv::visitor::{Ignored, ItemVisitor, ParameterVisitor, parameter_visitor_with};
use sfv::{BareItemFromInput, Parser, StringRef};

use super::{InvalidKey, InvalidKeyKind, Key};

/// How a header value spells a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeySyntax {
    /// `"abc"` or `abc`, which are the same key.
    #[default]
    Lenient,
    /// Only `"abc"`, the structured-field string of the IETF draft.
    Strict,
}

/// Keeps the item and drops its parameters: none is defined for this header, and the structured-field rules ask
/// receivers to ignore those they do not know.
struct StringItem;

impl Key {
    /// The key in the lines of one header; none when the header was not sent.
    ///
    /// Two lines are refused even when they are equal: whoever added the second one did not mean to repeat the first,
    /// and picking either would guess which operation was meant.
    ///
    /// ```
    /// use exactly::key::{Key, KeySyntax};
    ///
    /// let bare = Key::from_header([b"abc".as_slice()], KeySyntax::Lenient)?;
    /// let quoted = Key::from_header([br#""abc""#.as_slice()], KeySyntax::Lenient)?;
    /// assert_eq!(bare, quoted);
    /// assert_eq!(Key::from_header([], KeySyntax::Strict)?, None);
    /// # Ok::<(), exactly::key::InvalidKey>(())
    /// ```
    pub fn from_header<'a>(
        lines: impl IntoIterator<Item = &'a [u8]>,
        syntax: KeySyntax,
    ) -> Result<Option<Self>, InvalidKey> {
        let mut lines = lines.into_iter();
        let Some(line) = lines.next() else {
            return Ok(None);
        };
        if lines.next().is_some() {
            return Err(InvalidKey::new(InvalidKeyKind::SentTwice));
        }
        match syntax {
            KeySyntax::Strict => quoted(line),
            KeySyntax::Lenient => match trim(line) {
                line @ [b'"', ..] => quoted(line),
                line => bare(line),
            },
        }
        .map(Some)
    }
}

fn quoted(line: &[u8]) -> Result<Key, InvalidKey> {
    match Parser::new(line).parse_item_with_visitor(StringItem) {
        Ok(Some(text)) => Key::new(text.as_str()),
        Ok(None) => Err(InvalidKey::new(InvalidKeyKind::NotQuoted)),
        Err(_) => Err(InvalidKey::new(match trim(line) {
            [] => InvalidKeyKind::Empty,
            [b'"', ..] => InvalidKeyKind::BrokenQuotedString,
            _ => InvalidKeyKind::NotQuoted,
        })),
    }
}

fn bare(line: &[u8]) -> Result<Key, InvalidKey> {
    let refused = line.iter().find_map(|byte| match byte {
        b',' => Some(InvalidKeyKind::Comma),
        b' '..=b'~' => None,
        0x80.. => Some(InvalidKeyKind::NotVisibleAscii),
        _ => Some(InvalidKeyKind::ControlCharacter),
    });
    match refused {
        Some(kind) => Err(InvalidKey::new(kind)),
        None => Key::new(str::from_utf8(line).expect("visible ascii is utf-8")),
    }
}

/// White space around a header value belongs to the message, not to the value (RFC 9110).
fn trim(mut line: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = line {
        line = rest;
    }
    line
}

impl<'de> ItemVisitor<'de> for StringItem {
    type Out = Option<Cow<'de, StringRef>>;
    type Error = Infallible;

    fn bare_item(
        self,
        item: BareItemFromInput<'de>,
    ) -> Result<impl ParameterVisitor<'de, Out = Self::Out>, Self::Error> {
        Ok(parameter_visitor_with(Ignored, move |()| {
            Ok::<_, Infallible>(match item {
                BareItemFromInput::String(text) => Some(text),
                _ => None,
            })
        }))
    }
}
