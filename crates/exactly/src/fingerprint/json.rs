//! JSON in one form.
//!
//! RFC 8785, but for numbers: members are in the order of their names as UTF-16, strings have the shortest escapes,
//! there is no white space, and a number stays as it was written. RFC 8785 would print it as a double, so that `1` and
//! `1.0`, or 9007199254740992 and 9007199254740993, became equal. A handler that reads an integer tells them apart: it
//! refuses `1.0`, and it refunds one cent more. Clients print the same number the same way on every attempt, so nothing
//! is lost.

use std::cmp::Ordering;

use self::reader::{Piece, Reader};
use super::leave_out::Branch;

mod reader;

/// How deep arrays and objects may nest: what readers accept by default, and a bound on our stack.
const DEPTH_MAX: usize = 128;

/// Room for the members of a usual body, so that buffers seldom grow.
const MEMBERS_USUAL: usize = 16;
const NAMES_USUAL: usize = 8 * MEMBERS_USUAL;

/// The one form of a JSON text, or none if readers could disagree about it: it is not valid JSON in UTF-8, a name
/// occurs twice in an object, half of a surrogate pair stands alone, or it nests deeper than 128 levels.
///
/// ```
/// use exactly::fingerprint::canonical_json;
///
/// let text = br#"{ "b": 1.0, "a": "\u20ac" }"#;
/// assert_eq!(canonical_json(text), Some(r#"{"a":"€","b":1.0}"#.into()));
/// assert_eq!(canonical_json(br#"{"a":1,"a":2}"#), None);
/// ```
#[must_use]
pub fn canonical_json(text: &[u8]) -> Option<Vec<u8>> {
    canonical(text, &Branch::new())
}

/// The same without the places that `leave_out` names.
pub(super) fn canonical(text: &[u8], leave_out: &Branch) -> Option<Vec<u8>> {
    let text = str::from_utf8(text).ok()?;
    let mut writer = Writer {
        reader: Reader::new(text),
        // The one form is never longer than the text: no escape grows, and nothing is added.
        out: Vec::with_capacity(text.len()),
        names: Vec::with_capacity(NAMES_USUAL),
        members: Vec::with_capacity(MEMBERS_USUAL),
        sorted: Vec::new(),
    };
    writer.reader.skip_space();
    writer.value(DEPTH_MAX, leave_out.has_children().then_some(leave_out))?;
    writer.reader.skip_space();
    writer.reader.is_at_end().then_some(writer.out)
}

/// Writes values in the order in which they are read, and puts the members of an object in order when it closes. The
/// buffers are shared by all objects: an inner one takes its members off again before the outer one goes on.
struct Writer<'a> {
    reader: Reader<'a>,
    out: Vec<u8>,
    /// The names of members of open objects, unescaped, one after another.
    names: Vec<u8>,
    members: Vec<Member>,
    /// Where members are put in order.
    sorted: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Member {
    name: Span,
    /// Name, colon, value and a comma, in `out`; empty if left out.
    text: Span,
}

#[derive(Clone, Copy)]
struct Span {
    start: usize,
    end: usize,
}

impl Writer<'_> {
    fn value(&mut self, depth: usize, leave_out: Option<&Branch>) -> Option<()> {
        match self.reader.peek()? {
            b'{' => self.object(depth.checked_sub(1)?, leave_out),
            b'[' => self.array(depth.checked_sub(1)?, leave_out),
            b'"' => self.string(),
            _ => {
                self.out.extend_from_slice(self.reader.scalar()?);
                Some(())
            }
        }
    }

    fn object(&mut self, depth: usize, leave_out: Option<&Branch>) -> Option<()> {
        let (names, members) = (self.names.len(), self.members.len());
        self.reader.expect(b'{')?;
        self.out.push(b'{');
        self.reader.skip_space();
        if !self.reader.eat(b'}') {
            loop {
                self.member(depth, leave_out)?;
                self.reader.skip_space();
                if self.reader.eat(b'}') {
                    break;
                }
                self.reader.expect(b',')?;
                self.reader.skip_space();
            }
        }
        self.sort_members(members)?;
        self.names.truncate(names);
        self.members.truncate(members);
        self.close(b'}');
        Some(())
    }

    fn member(&mut self, depth: usize, leave_out: Option<&Branch>) -> Option<()> {
        let start = self.out.len();
        let name = self.name()?;
        let below = leave_out.and_then(|branch| branch.child(&self.names[name.start..name.end]));
        self.reader.skip_space();
        self.reader.expect(b':')?;
        self.out.push(b':');
        self.reader.skip_space();
        self.value(depth, below)?;
        self.out.push(b',');
        self.drop_if_left_out(start, below);
        let end = self.out.len();
        let text = Span { start, end };
        self.members.push(Member { name, text });
        Some(())
    }

    fn array(&mut self, depth: usize, leave_out: Option<&Branch>) -> Option<()> {
        self.reader.expect(b'[')?;
        self.out.push(b'[');
        self.reader.skip_space();
        if !self.reader.eat(b']') {
            for index in 0_usize.. {
                let start = self.out.len();
                let below = leave_out.and_then(|branch| branch.child(index.to_string().as_bytes()));
                self.value(depth, below)?;
                self.out.push(b',');
                self.drop_if_left_out(start, below);
                self.reader.skip_space();
                if self.reader.eat(b']') {
                    break;
                }
                self.reader.expect(b',')?;
                self.reader.skip_space();
            }
        }
        self.close(b']');
        Some(())
    }

    /// What is left out was read all the same, so that a body counts whole if any of it is in doubt.
    fn drop_if_left_out(&mut self, start: usize, branch: Option<&Branch>) {
        if branch.is_some_and(Branch::is_left_out) {
            self.out.truncate(start);
        }
    }

    /// Every element ends in a comma, the last one in the closing bracket.
    fn close(&mut self, bracket: u8) {
        match self.out.last_mut() {
            Some(last @ b',') => *last = bracket,
            _ => self.out.push(bracket),
        }
    }

    /// None if a name occurs twice.
    fn sort_members(&mut self, from: usize) -> Option<()> {
        let names = &self.names;
        let order = |one: &Member, other: &Member| {
            let [one, other] = [one, other].map(|member| &names[member.name.start..member.name.end]);
            utf16_order(one, other)
        };
        let members = &mut self.members[from..];
        if members.is_sorted_by(|one, other| order(one, other).is_lt()) {
            return Some(());
        }
        let first = members.first()?.text.start;
        members.sort_unstable_by(order);
        if !members.is_sorted_by(|one, other| order(one, other).is_lt()) {
            return None;
        }
        self.sorted.clear();
        self.sorted.reserve(self.out.len() - first);
        for Member { text, .. } in members {
            self.sorted.extend_from_slice(&self.out[text.start..text.end]);
        }
        self.out[first..].copy_from_slice(&self.sorted);
        Some(())
    }

    fn name(&mut self) -> Option<Span> {
        let start = self.names.len();
        self.reader.expect(b'"')?;
        self.out.push(b'"');
        loop {
            match self.reader.piece()? {
                Piece::Plain(text) => {
                    self.out.extend_from_slice(text);
                    self.names.extend_from_slice(text);
                }
                Piece::Escaped(char) => {
                    push_escaped(&mut self.out, char);
                    push_plain(&mut self.names, char);
                }
                Piece::End => break,
            }
        }
        self.out.push(b'"');
        let end = self.names.len();
        Some(Span { start, end })
    }

    fn string(&mut self) -> Option<()> {
        self.reader.expect(b'"')?;
        self.out.push(b'"');
        loop {
            match self.reader.piece()? {
                Piece::Plain(text) => self.out.extend_from_slice(text),
                Piece::Escaped(char) => push_escaped(&mut self.out, char),
                Piece::End => break,
            }
        }
        self.out.push(b'"');
        Some(())
    }
}

/// UTF-8 sorts like UTF-16 except that the surrogates, which stand for characters of four bytes, lie below U+E000,
/// whose characters have three. Where two texts first differ by such a lead byte, those of three bytes go last.
fn utf16_order(one: &[u8], other: &[u8]) -> Ordering {
    let rank = |byte: u8| if matches!(byte, 0xEE | 0xEF) { byte + 0x10 } else { byte };
    let differs = one.iter().zip(other).find(|(one, other)| one != other);
    match differs {
        Some((&one, &other)) => rank(one).cmp(&rank(other)),
        None => one.len().cmp(&other.len()),
    }
}

fn push_escaped(out: &mut Vec<u8>, char: char) {
    match char {
        '"' => out.extend(br#"\""#),
        '\\' => out.extend(br"\\"),
        '\u{8}' => out.extend(br"\b"),
        '\t' => out.extend(br"\t"),
        '\n' => out.extend(br"\n"),
        '\u{c}' => out.extend(br"\f"),
        '\r' => out.extend(br"\r"),
        '\0'..='\u{1f}' => out.extend(format!("\\u{:04x}", u32::from(char)).into_bytes()),
        _ => push_plain(out, char),
    }
}

fn push_plain(out: &mut Vec<u8>, char: char) {
    out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
}
