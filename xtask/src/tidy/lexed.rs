//! A Rust file taken apart far enough to tell code from what code says.

use std::ops::Range;

pub(super) struct Lexed {
    /// The text with comments and literals blanked, line for line.
    pub(super) code: String,
    /// The insides of the string literals, with the line where each begins.
    pub(super) strings: Vec<(usize, String)>,
}

impl Lexed {
    pub(super) fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut code = String::with_capacity(text.len());
        let mut strings = Vec::new();
        let mut line = 1;
        let mut at = 0;
        while at < chars.len() {
            let token = token(&chars, at);
            if let Token::String { inside, .. } = &token {
                strings.push((line, chars[inside.clone()].iter().collect()));
            }
            let end = token.end();
            let plain = matches!(token, Token::Code { .. });
            for &c in &chars[at..end] {
                line += usize::from(c == '\n');
                code.push(if plain || c == '\n' { c } else { ' ' });
            }
            at = end;
        }
        Self { code, strings }
    }

    /// The same without the tests at the end of the file.
    pub(super) fn without_tests(mut self) -> Self {
        let begin = self.code.match_indices("#[cfg(test)]").find(|(at, mark)| {
            let next = self.code[at + mark.len()..].trim_start();
            next.starts_with("mod ") && next.contains('{')
        });
        if let Some((at, _)) = begin {
            self.code.truncate(at);
            let last = self.code.lines().count();
            self.strings.retain(|(line, _)| *line <= last);
        }
        self
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.code.lines())
    }
}

enum Token {
    Code { end: usize },
    Comment { end: usize },
    Character { end: usize },
    String { inside: Range<usize>, end: usize },
}

impl Token {
    fn end(&self) -> usize {
        match self {
            Self::Code { end } | Self::Comment { end } | Self::Character { end } | Self::String { end, .. } => *end,
        }
    }
}

fn token(chars: &[char], at: usize) -> Token {
    let rest = &chars[at..];
    match rest {
        ['/', '/', ..] => Token::Comment {
            end: at + position(rest, '\n'),
        },
        ['/', '*', ..] => Token::Comment {
            end: at + block_comment(rest),
        },
        ['"', ..] => quoted(chars, at),
        ['\'', '\\', _, after @ ..] => Token::Character {
            end: (at + 3 + position(after, '\'') + 1).min(chars.len()),
        },
        // A lifetime has no closing quote and is code.
        ['\'', _, '\'', ..] => Token::Character { end: at + 3 },
        [first, ..] if first.is_alphanumeric() || *first == '_' => word(chars, at),
        _ => Token::Code { end: at + 1 },
    }
}

/// An identifier, unless it is the prefix of a raw string.
fn word(chars: &[char], at: usize) -> Token {
    let length = chars[at..]
        .iter()
        .position(|c| !c.is_alphanumeric() && *c != '_')
        .unwrap_or(chars.len() - at);
    let prefix: String = chars[at..at + length].iter().collect();
    let after = at + length;
    let hashes = chars[after..].iter().take_while(|c| **c == '#').count();
    let raw = ["r", "br", "cr"].contains(&prefix.as_str());
    if !raw || chars.get(after + hashes) != Some(&'"') {
        return Token::Code { end: after };
    }
    let begin = after + hashes + 1;
    let closing =
        |end: &usize| chars[*end] == '"' && chars[end + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
    let end = (begin..chars.len()).find(closing).unwrap_or(chars.len());
    Token::String {
        inside: begin..end,
        end: (end + 1 + hashes).min(chars.len()),
    }
}

fn quoted(chars: &[char], at: usize) -> Token {
    let begin = at + 1;
    let mut end = begin;
    while end < chars.len() && chars[end] != '"' {
        end += if chars[end] == '\\' { 2 } else { 1 };
    }
    let end = end.min(chars.len());
    Token::String {
        inside: begin..end,
        end: (end + 1).min(chars.len()),
    }
}

/// Block comments nest.
fn block_comment(chars: &[char]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < chars.len() {
        match chars[at..] {
            ['/', '*', ..] => {
                depth += 1;
                at += 2;
            }
            ['*', '/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

fn position(chars: &[char], wanted: char) -> usize {
    chars.iter().position(|c| *c == wanted).unwrap_or(chars.len())
}

#[cfg(test)]
mod tests {
    use super::Lexed;

    #[test]
    fn comments_and_literals_are_not_code() {
        let text = "let a = 'x'; // now()\nlet b: &'static str = \"now()\"; /* /* */ now() */ c\n";
        let lexed = Lexed::new(text);
        assert!(!lexed.code.contains("now"));
        assert!(lexed.code.contains("&'static str"));
        assert!(lexed.code.trim_end().ends_with('c'));
        assert_eq!(lexed.code.len(), text.len());
    }

    #[test]
    fn strings_keep_their_line_and_their_quotes_do_not_end_them_early() {
        let text = "f(\"a \\\" b\");\ng(r#\"c \" d\"#, '\"', '\\'');\nh(\"e\nf\", b\"g\")\n";
        let strings = Lexed::new(text).strings;
        let expected = [(1, "a \\\" b"), (2, "c \" d"), (3, "e\nf"), (4, "g")];
        assert_eq!(strings, expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn the_tests_at_the_end_can_be_left_out() {
        let text = "fn f() { g(\"a\") }\n#[cfg(test)]\nmod tests {\n    fn t() { g(\"b\") }\n}\n";
        let lexed = Lexed::new(text).without_tests();
        assert_eq!(lexed.strings, [(1, "a".to_owned())]);
        assert!(!lexed.code.contains("fn t"));
    }

    #[test]
    fn unfinished_literals_end_with_the_file() {
        for text in ["\"abc", "\"abc\\", "r#\"abc", "/* abc", "'\\", "'\\n", "// abc"] {
            Lexed::new(text);
        }
    }
}
