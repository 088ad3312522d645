//! LIKE and ILIKE.

use crate::error::{Error, Result};

/// A character as ILIKE compares it.
pub use block::folded::small as fold;

/// Whether `value` matches `pattern` as a whole: `%` any run, `_` one character, `escape` takes the next literally.
pub fn matches(value: &str, pattern: &str, escape: Option<char>, fold_case: bool) -> Result<bool> {
    let fold = |c: char| if fold_case { fold(c) } else { c };
    // Most patterns are pieces that come one after the other, which need no look at characters.
    if !fold_case && let Some(pieces) = Pieces::new(pattern, escape) {
        return Ok(pieces.matches(value.as_bytes()));
    }
    let tokens = tokenize(pattern, escape, fold)?;
    let value: Vec<char> = value.chars().map(fold).collect();
    Ok(match_tokens(&value, &tokens))
}

/// A pattern without `_` and escapes: pieces of text with anything between them. Bytes of UTF-8
/// match where its characters do.
#[derive(Clone, Debug)]
pub struct Pieces<P> {
    first: P,
    /// In this order, each behind the one before; the last of all is at the end.
    rest: Vec<P>,
}

impl<'p> Pieces<&'p [u8]> {
    pub fn new(pattern: &'p str, escape: Option<char>) -> Option<Pieces<&'p [u8]>> {
        if pattern.contains(|c| c == '_' || Some(c) == escape) {
            return None;
        }
        let mut pieces = pattern.split('%').map(str::as_bytes);
        Some(Pieces {
            first: pieces.next()?,
            rest: pieces.collect(),
        })
    }

    pub fn to_owned(&self) -> Pieces<Box<[u8]>> {
        Pieces {
            first: self.first.into(),
            rest: self.rest.iter().map(|p| (*p).into()).collect(),
        }
    }
}

impl<P: AsRef<[u8]>> Pieces<P> {
    pub fn matches(&self, value: &[u8]) -> bool {
        let Some((last, middle)) = self.rest.split_last() else {
            return value == self.first.as_ref();
        };
        let Some(mut value) = value.strip_prefix(self.first.as_ref()) else {
            return false;
        };
        for piece in middle {
            let piece = piece.as_ref();
            match find(value, piece) {
                Some(at) => value = &value[at + piece.len()..],
                None => return false,
            }
        }
        value.ends_with(last.as_ref())
    }
}

/// Where a piece comes first.
fn find(value: &[u8], piece: &[u8]) -> Option<usize> {
    let Some((first, rest)) = piece.split_first() else {
        return Some(0);
    };
    let mut from = 0;
    while let Some(at) = value[from..].iter().position(|b| b == first) {
        let behind = &value[from + at + 1..];
        if behind.starts_with(rest) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

#[derive(PartialEq, Eq, Clone, Copy)]
enum Token {
    Literal(char),
    One,
    Any,
}

fn tokenize(
    pattern: &str,
    escape: Option<char>,
    fold: impl Fn(char) -> char,
) -> Result<Vec<Token>> {
    let mut tokens = Vec::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            let next = chars.next().ok_or_else(|| {
                Error::new("22025", "LIKE pattern must not end with escape character")
            })?;
            tokens.push(Token::Literal(fold(next)));
        } else if c == '%' {
            if tokens.last() != Some(&Token::Any) {
                tokens.push(Token::Any);
            }
        } else if c == '_' {
            tokens.push(Token::One);
        } else {
            tokens.push(Token::Literal(fold(c)));
        }
    }
    Ok(tokens)
}

/// Greedy match with return to the last `%` only, so the time is bounded by the product of both lengths.
fn match_tokens(value: &[char], tokens: &[Token]) -> bool {
    let (mut v, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while v < value.len() {
        match tokens.get(t) {
            Some(Token::Any) => {
                retry = Some((t + 1, v));
                t += 1;
            }
            Some(Token::One) => {
                v += 1;
                t += 1;
            }
            Some(Token::Literal(c)) if *c == value[v] => {
                v += 1;
                t += 1;
            }
            _ => match retry {
                Some((after, from)) => {
                    retry = Some((after, from + 1));
                    t = after;
                    v = from + 1;
                }
                None => return false,
            },
        }
    }
    tokens[t..].iter().all(|token| *token == Token::Any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let like = |v: &str, p: &str| matches(v, p, Some('\\'), false).unwrap();
        assert!(
            like("abc", "a%c")
                && like("abc", "___")
                && like("abc", "%")
                && like("", "%")
                && like("a%c", "a\\%c")
        );
        assert!(
            !like("abc", "a\\%c") && !like("abc", "ab") && !like("abc", "____") && !like("", "_")
        );
        assert!(
            like("aXbXc", "a%X_")
                && like("mississippi", "m%iss%ip%i")
                && !like("mississippi", "m%iss%ipx%")
        );
        assert!(like("", "") && like("abab", "ab%ab") && like("xaab", "%ab") && like("a", "%a%"));
        assert!(!like("a", "") && !like("aba", "ab%ba") && !like("a", "%a%a") && !like("b", "a%"));
        assert!(like("xaéb", "%aé%") && !like("xaêb", "%aé%"));
        assert!(matches("ÄB", "äb", None, true).unwrap());
        assert!(matches("x", "x\\", Some('\\'), false).is_err());
    }
}
