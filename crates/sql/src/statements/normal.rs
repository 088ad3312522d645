//! Texts without their literals: what statements have in common that differ in values only.

use crate::expr::md5;

/// The text with `$n` for each number and string, as `pg_stat_statements` shows it. The numbers go
/// on after the text's own parameters.
pub(crate) fn normalized(text: &str) -> String {
    let mut next = highest_parameter(text) + 1;
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (length, is_literal) = token(rest, c);
        let (piece, after) = rest.split_at(length);
        if is_literal {
            out.push_str(&format!("${next}"));
            next += 1;
        } else {
            out.push_str(piece);
        }
        rest = after;
    }
    out
}

/// A number for all statements that have the same text without literals.
pub(crate) fn signature(normalized: &str) -> i64 {
    let digest = md5::words(normalized.as_bytes());
    (u64::from(digest[2]) << 32 | u64::from(digest[3])) as i64
}

fn highest_parameter(text: &str) -> u32 {
    let mut highest = 0;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (length, _) = token(rest, c);
        let number = rest[..length]
            .strip_prefix('$')
            .and_then(|n| n.parse().ok());
        highest = highest.max(number.unwrap_or(0));
        rest = &rest[length..];
    }
    highest
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// The length of the first token, and whether it is a literal.
fn token(text: &str, first: char) -> (usize, bool) {
    let bytes = text.as_bytes();
    let second = bytes.get(1).copied().unwrap_or(0);
    match first {
        '\'' => (quoted(text, 1, b'\'', false), true),
        'e' | 'E' if second == b'\'' => (quoted(text, 2, b'\'', true), true),
        'b' | 'B' | 'x' | 'X' | 'n' | 'N' if second == b'\'' => {
            (quoted(text, 2, b'\'', false), true)
        }
        '"' => (quoted(text, 1, b'"', false), false),
        '-' if second == b'-' => (text.find('\n').unwrap_or(text.len()), false),
        '/' if second == b'*' => (comment(text), false),
        '$' => dollar(text),
        '0'..='9' => (number(text), true),
        '.' if second.is_ascii_digit() => (number(text), true),
        c if is_word(c) => (text.find(|c| !is_word(c)).unwrap_or(text.len()), false),
        c => (c.len_utf8(), false),
    }
}

/// The end of what is quoted from `from` on; a doubled quote does not end it.
fn quoted(text: &str, from: usize, quote: u8, escapes: bool) -> usize {
    let bytes = text.as_bytes();
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if escapes => at += 2,
            b if b == quote && bytes.get(at + 1) == Some(&quote) => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

fn comment(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (2, 1);
    while at + 1 < bytes.len() {
        match (bytes[at], bytes[at + 1]) {
            (b'/', b'*') => {
                depth += 1;
                at += 2;
            }
            (b'*', b'/') => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}

/// A parameter, or a string between dollars.
fn dollar(text: &str) -> (usize, bool) {
    let after = &text[1..];
    let word = after.find(|c: char| !is_word(c) || c == '$');
    let Some(end) = word.map(|end| end + 1) else {
        return (text.len(), false);
    };
    let is_tag = text.as_bytes()[end] == b'$' && !after.starts_with(|c: char| c.is_ascii_digit());
    if !is_tag {
        return (end, false);
    }
    let tag = &text[..=end];
    let closing = text[tag.len()..].find(tag);
    (closing.map_or(text.len(), |at| at + 2 * tag.len()), true)
}

fn number(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let is_sign =
            matches!(bytes[at], b'+' | b'-') && at > 0 && matches!(bytes[at - 1], b'e' | b'E');
        let is_part = bytes[at].is_ascii_alphanumeric() || matches!(bytes[at], b'.' | b'_');
        // `1..2` are two numbers.
        let is_range = bytes[at] == b'.' && bytes.get(at + 1) == Some(&b'.');
        if !(is_part || is_sign) || is_range {
            break;
        }
        at += 1;
    }
    at.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_become_parameters_and_nothing_else() {
        for (text, expected) in [
            ("select 1", "select $1"),
            ("select a1, $2, 'it''s', 1.5e-3", "select a1, $2, $3, $4"),
            ("select \"a 1\" -- 5\n, 6", "select \"a 1\" -- 5\n, $1"),
            (
                "select e'a\\'b' /* 1 /* 2 */ 3 */ , x'1f'",
                "select $1 /* 1 /* 2 */ 3 */ , $2",
            ),
            ("select $a$ 'x' $a$, $$1$$", "select $1, $2"),
            ("select -5, t.x5, .5", "select -$1, t.x5, $2"),
            ("select 'open", "select $1"),
            ("select $1", "select $1"),
            ("sélect 'ü', 2", "sélect $1, $2"),
            ("", ""),
        ] {
            assert_eq!(normalized(text), expected, "{text}");
        }
    }

    #[test]
    fn values_do_not_change_the_signature() {
        let of = |text: &str| signature(&normalized(text));
        assert_eq!(
            of("select a from t where b = 5"),
            of("select a from t where b = 77")
        );
        assert_ne!(
            of("select a from t where b = 5"),
            of("select a from t where c = 5")
        );
    }
}
