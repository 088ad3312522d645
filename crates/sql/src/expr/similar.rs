//! Patterns of SIMILAR TO as PostgreSQL's regular expressions (`similar_to_escape`).

use crate::error::{Error, Result};

/// Where a character class is read: how many brackets are open, and whether `]` would end it.
#[derive(Default)]
struct Class {
    brackets: u32,
    /// 1 behind the opening bracket, 2 behind its `^`, more further inside.
    place: u32,
}

/// The regular expression of a pattern, with its escape character; none: nothing is escaped.
pub fn to_regex(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut out = String::from("^(?:");
    let mut class = Class::default();
    let (mut escaped, mut separators) = (false, 0);
    for c in pattern.chars() {
        if escaped {
            escaped = false;
            if c == '"' && class.brackets == 0 {
                separators += 1;
                out.push_str(separator(separators)?);
            } else {
                out.push('\\');
                out.push(c);
                class.place = 3;
            }
        } else if escape == Some(c) {
            escaped = true;
        } else if class.brackets > 0 {
            class.read(c, &mut out);
        } else {
            match c {
                '[' => {
                    out.push('[');
                    class = Class {
                        brackets: 1,
                        place: 1,
                    };
                }
                '%' => out.push_str(".*"),
                '_' => out.push('.'),
                '(' => out.push_str("(?:"),
                '\\' | '.' | '^' | '$' => out.extend(['\\', c]),
                _ => out.push(c),
            }
        }
    }
    out.push_str(")$");
    Ok(out)
}

impl Class {
    fn read(&mut self, c: char, out: &mut String) {
        if c == '\\' {
            out.push('\\');
        }
        out.push(c);
        match c {
            ']' if self.place > 2 => self.brackets -= 1,
            '[' => {
                self.brackets += 1;
                self.place = 3;
            }
            '^' => self.place += 1,
            _ => self.place = 3,
        }
    }
}

/// What an escaped quote stands for, which divides the pattern of `substring` into three parts.
fn separator(number: u32) -> Result<&'static str> {
    match number {
        1 => Ok("){1,1}?("),
        2 => Ok("){1,1}(?:"),
        _ => Err(Error::new(
            "2200C",
            "SQL regular expression may not contain more than two escape-double-quote separators",
        )),
    }
}

/// The escape character that a string names; none if it is empty.
pub fn escape_of(text: &str) -> Result<Option<char>> {
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (first, None) => Ok(first),
        _ => Err(Error::new("22025", "invalid escape string")
            .hint("Escape string must be empty or one character.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `similar_to_escape` gives in PostgreSQL 15.
    #[test]
    fn patterns_are_those_of_postgres() {
        let of = |pattern| to_regex(pattern, Some('\\')).expect(pattern);
        assert_eq!(of("a%b_"), "^(?:a.*b.)$");
        assert_eq!(of("(a|b)+"), "^(?:(?:a|b)+)$");
        assert_eq!(of("a.\\%$"), "^(?:a\\.\\%\\$)$");
        assert_eq!(of("[a%_]]"), "^(?:[a%_]])$");
        assert_eq!(of("[^]%]"), "^(?:[^]%])$");
        assert_eq!(of("a\\\"b\\\"c"), "^(?:a){1,1}?(b){1,1}(?:c)$");
        assert_eq!(
            to_regex("a#%b\\", Some('#')).ok().as_deref(),
            Some("^(?:a\\%b\\\\)$")
        );
        let error = to_regex("\\\"\\\"\\\"", Some('\\')).expect_err("three");
        assert_eq!(error.sqlstate(), "2200C");
        assert_eq!(escape_of("").ok(), Some(None));
        assert_eq!(escape_of("ab").expect_err("two").sqlstate(), "22025");
    }
}
