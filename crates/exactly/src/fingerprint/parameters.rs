//! Header values with parameters: `Content-Type` and `Content-Disposition`.
//!
//! Readers of these headers disagree about everything beyond the plain grammar: escapes in quoted text, repeated and
//! extended parameters, stray semicolons. So only the plain grammar is read here, and anything else is no value at all.

use std::ops::Range;

/// `value; name=text; name="text"`.
pub(super) struct Parameterized<'a> {
    pub(super) value: &'a str,
    parameters: Vec<Parameter<'a>>,
}

pub(super) struct Parameter<'a> {
    name: &'a str,
    /// Without quotes. Bytes, because browsers send the names of fields and files unescaped.
    pub(super) value: &'a [u8],
    /// Where it stands in the header, from its semicolon on.
    pub(super) span: Range<usize>,
}

/// A parameter is there in more than one form, and readers differ in which they believe.
pub(super) struct Ambiguous;

impl<'a> Parameterized<'a> {
    pub(super) fn parse(header: &'a [u8]) -> Option<Self> {
        let (value, mut rest) = split_while(header, |byte| is_token(byte) || byte == b'/')?;
        let value = str::from_utf8(value).ok()?;
        let mut parameters = Vec::new();
        loop {
            let next = skip_space(rest);
            if next.is_empty() {
                return Some(Self { value, parameters });
            }
            let start = header.len() - next.len();
            let (name, text, after) = parameter(next)?;
            rest = after;
            parameters.push(Parameter {
                name,
                value: text,
                span: start..header.len() - after.len(),
            });
        }
    }

    /// The parameter of this name, if there is one; the extended forms `name*` and `name*0` count as another of it.
    pub(super) fn only(&self, name: &str) -> Result<Option<&Parameter<'a>>, Ambiguous> {
        let same = |parameter: &&Parameter<'_>| {
            let plain = parameter.name.split('*').next();
            plain.is_some_and(|plain| plain.eq_ignore_ascii_case(name))
        };
        let mut found = self.parameters.iter().filter(same);
        match (found.next(), found.next()) {
            (None, _) => Ok(None),
            (Some(one), None) if !one.name.contains('*') => Ok(Some(one)),
            _ => Err(Ambiguous),
        }
    }
}

/// The name and the value of the parameter that `text` opens with, and what follows it.
fn parameter(text: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let text = skip_space(text.strip_prefix(b";")?);
    let (name, text) = split_while(text, is_token)?;
    let name = str::from_utf8(name).ok()?;
    let text = text.strip_prefix(b"=")?;
    let (value, after) = match text.strip_prefix(b"\"") {
        Some(quoted) => {
            let end = quoted.iter().position(|&byte| ends_plain_quoted(byte))?;
            (&quoted[..end], quoted[end..].strip_prefix(b"\"")?)
        }
        None => split_while(text, is_bare)?,
    };
    Some((name, value, after))
}

/// The longest start made of such bytes, which must not be empty.
fn split_while(text: &[u8], wanted: fn(u8) -> bool) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|&byte| !wanted(byte));
    let end = end.unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn skip_space(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !b" \t".contains(byte));
    &text[start.unwrap_or(text.len())..]
}

/// The closing quote, or a byte that quoted text should not hold: some readers keep a backslash, others drop it.
fn ends_plain_quoted(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\') || byte.is_ascii_control()
}

/// Bytes of tokens, and four that no token has but that mail libraries put into a boundary without quoting it.
fn is_bare(byte: u8) -> bool {
    is_token(byte) || b"/:=?".contains(&byte)
}

/// The bytes of a token (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
