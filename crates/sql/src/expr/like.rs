//! LIKE and ILIKE.

use crate::error::{Error, Result};

/// Whether `value` matches `pattern` as a whole: `%` any run, `_` one character, `escape` takes the next literally.
pub fn matches(value: &str, pattern: &str, escape: Option<char>, fold_case: bool) -> Result<bool> {
    let fold = |c: char| {
        if fold_case {
            c.to_lowercase().next().unwrap_or(c)
        } else {
            c
        }
    };
    let tokens = tokenize(pattern, escape, fold)?;
    let value: Vec<char> = value.chars().map(fold).collect();
    Ok(match_tokens(&value, &tokens))
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
        assert!(matches("ÄB", "äb", None, true).unwrap());
        assert!(matches("x", "x\\", Some('\\'), false).is_err());
    }
}
