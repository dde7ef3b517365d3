//! The grammar of RFC 8259, to the letter.

/// A JSON text and a place in it. Every method that returns none has met something that is not JSON, and the reader is
/// of no more use.
pub(super) struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

/// A piece of a string.
pub(super) enum Piece<'a> {
    /// Characters that need no escape.
    Plain(&'a [u8]),
    /// A character that was written as an escape, needed or not.
    Escaped(char),
    /// The closing quote.
    End,
}

impl<'a> Reader<'a> {
    /// Takes a `str`, so that what lies between the bytes of the grammar is known to be UTF-8.
    pub(super) fn new(text: &'a str) -> Self {
        let text = text.as_bytes();
        Self { text, at: 0 }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(super) fn skip_space(&mut self) {
        self.skip_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    }

    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, byte: u8) -> Option<()> {
        self.eat(byte).then_some(())
    }

    /// A number, `true`, `false` or `null`, as written.
    pub(super) fn scalar(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        match self.peek()? {
            b't' => self.literal(b"true")?,
            b'f' => self.literal(b"false")?,
            b'n' => self.literal(b"null")?,
            _ => self.number()?,
        }
        Some(&self.text[start..self.at])
    }

    /// The next piece of a string whose opening quote was read.
    pub(super) fn piece(&mut self) -> Option<Piece<'a>> {
        let start = self.at;
        self.skip_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20));
        if self.at > start {
            return Some(Piece::Plain(&self.text[start..self.at]));
        }
        match self.next()? {
            b'"' => Some(Piece::End),
            b'\\' => self.escape().map(Piece::Escaped),
            _ => None,
        }
    }

    fn escape(&mut self) -> Option<char> {
        Some(match self.next()? {
            escaped @ (b'"' | b'\\' | b'/') => char::from(escaped),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.utf16_escape(),
            _ => return None,
        })
    }

    /// One `\u` escape, or two that make up one character. Half a pair is no character, and readers differ in what they
    /// put in its place.
    fn utf16_escape(&mut self) -> Option<char> {
        let first = self.utf16_unit()?;
        if !(0xD800..0xDC00).contains(&first) {
            return char::from_u32(first.into());
        }
        self.literal(br"\u")?;
        let second = self.utf16_unit()?;
        char::decode_utf16([first, second]).next()?.ok()
    }

    fn utf16_unit(&mut self) -> Option<u16> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = char::from(self.next()?).to_digit(16)?;
            unit = unit << 4 | u16::try_from(digit).ok()?;
        }
        Some(unit)
    }

    fn number(&mut self) -> Option<()> {
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _signed = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        Some(())
    }

    /// At least one.
    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        self.skip_while(|byte| byte.is_ascii_digit());
        (self.at > start).then_some(())
    }

    fn literal(&mut self, literal: &[u8]) -> Option<()> {
        self.text[self.at..]
            .starts_with(literal)
            .then(|| self.at += literal.len())
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) {
        let rest = &self.text[self.at..];
        let end = rest.iter().position(|&byte| !wanted(byte));
        self.at += end.unwrap_or(rest.len());
    }
}
