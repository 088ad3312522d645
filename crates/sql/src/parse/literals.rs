//! Statements that differ only in the literals that columns are compared with, or set to, as one
//! statement with parameters: so that clients that write values into their texts share a plan.
//!
//! **Invariants.**
//! - Only a literal right after `name =` becomes a parameter, and a number keeps its type. There it
//!   means the same: no position in ORDER BY, no count of LIMIT, no form of a type's name.
//! - How a value is written where two places must be alike, as in GROUP BY, is not seen here. The
//!   statement with parameters is then an error, and the text is taken as it is.

use super::split::quote_end;
use crate::types::SqlType;

/// A text without literals, and what stood there.
#[derive(Debug, PartialEq, Eq)]
pub struct Shared<'s> {
    pub text: String,
    /// Declared types of the parameters; zero for a string, which takes its type from the column.
    pub types: Vec<u32>,
    pub values: Vec<std::borrow::Cow<'s, str>>,
}

/// Longer texts are rarely sent twice.
const MAX_BYTES: usize = 4096;
const MAX_LITERALS: usize = 64;

/// What the last token was, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Name,
    /// `=` after a name.
    Equals,
    Other,
}

/// `None` if nothing is to be shared, or the text is not simple enough to be sure.
pub fn shared(sql: &str) -> Option<Shared<'_>> {
    let bytes = sql.as_bytes();
    let command = bytes.get(..6)?;
    let known = ["select", "update", "delete"];
    if sql.len() > MAX_BYTES
        || !known
            .iter()
            .any(|k| command.eq_ignore_ascii_case(k.as_bytes()))
    {
        return None;
    }
    let mut found = Shared {
        text: String::with_capacity(sql.len()),
        types: Vec::new(),
        values: Vec::new(),
    };
    let (mut at, mut copied, mut last) = (0, 0, Last::Other);
    while at < bytes.len() {
        let from = at;
        let (end, token) = match bytes[at] {
            b if b.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b if is_word(b) && !b.is_ascii_digit() => {
                let end = end_of(bytes, at, is_word);
                // A prefix makes another kind of string of the next quote.
                if matches!(bytes.get(end), Some(b'\'' | b'&')) {
                    return None;
                }
                (end, Last::Name)
            }
            b'"' => (quote_end(bytes, at, b'"', false), Last::Name),
            b'0'..=b'9' => {
                let end = end_of(bytes, at, |b| is_word(b) || b == b'.');
                if last == Last::Equals
                    && !is_cast(bytes, end)
                    && let Some(ty) = integer_type(&sql[at..end])
                {
                    found.put(&sql[copied..from], ty.oid(), sql[from..end].into());
                    copied = end;
                }
                (end, Last::Other)
            }
            b'\'' => {
                let end = string_end(bytes, at)?;
                if last == Last::Equals && !is_cast(bytes, end) {
                    let text = &sql[from + 1..end - 1];
                    let value = match text.contains('\'') {
                        true => text.replace("''", "'").into(),
                        false => text.into(),
                    };
                    found.put(&sql[copied..from], 0, value);
                    copied = end;
                }
                (end, Last::Other)
            }
            b if is_operator(b) => {
                let end = end_of(bytes, at, is_operator);
                let operator = &sql[at..end];
                if operator.contains("--") || operator.contains("/*") {
                    return None;
                }
                match (operator, last) {
                    ("=", Last::Name) => (end, Last::Equals),
                    _ => (end, Last::Other),
                }
            }
            b'$' | b'\\' => return None,
            _ => (at + 1, Last::Other),
        };
        (at, last) = (end, token);
    }
    if found.values.is_empty() || found.values.len() > MAX_LITERALS {
        return None;
    }
    found.text.push_str(&sql[copied..]);
    Some(found)
}

impl<'s> Shared<'s> {
    fn put(&mut self, before: &str, ty: u32, value: std::borrow::Cow<'s, str>) {
        self.text.push_str(before);
        self.types.push(ty);
        self.values.push(value);
        self.text.push('$');
        self.text.push_str(&self.values.len().to_string());
    }
}

/// The type of an integer literal.
fn integer_type(text: &str) -> Option<SqlType> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    match (text.parse::<i32>(), text.parse::<i64>()) {
        (Ok(_), _) => Some(SqlType::Int4),
        (_, Ok(_)) => Some(SqlType::Int8),
        _ => None,
    }
}

/// Whether `::` follows: some types read literals as they read nothing else.
fn is_cast(bytes: &[u8], end: usize) -> bool {
    let at = end_of(bytes, end, |b| b.is_ascii_whitespace());
    bytes[at..].starts_with(b"::")
}

/// The end of a string, or nothing if it does not end, or goes on after it.
fn string_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from + 1;
    loop {
        match (bytes.get(at)?, bytes.get(at + 1)) {
            (b'\'', Some(b'\'')) => at += 2,
            (b'\'', _) => break,
            _ => at += 1,
        }
    }
    // Strings on several lines are one.
    let rest = &bytes[at + 1..];
    match rest.iter().find(|b| !b.is_ascii_whitespace()) {
        Some(b'\'') => None,
        _ => Some(at + 1),
    }
}

fn end_of(bytes: &[u8], from: usize, belongs: impl Fn(u8) -> bool) -> usize {
    let rest = bytes[from..].iter().position(|b| !belongs(*b));
    rest.map_or(bytes.len(), |n| from + n)
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80
}

fn is_operator(b: u8) -> bool {
    b"+-*/<>=~!@#%^&|`?:".contains(&b)
}

#[cfg(test)]
mod tests {
    use super::shared;

    fn of(sql: &str) -> Option<(String, Vec<u32>, Vec<String>)> {
        let found = shared(sql)?;
        let values = found.values.iter().map(|v| v.to_string());
        Some((found.text.clone(), found.types.clone(), values.collect()))
    }

    #[test]
    fn literals_that_columns_equal_are_parameters() {
        let (text, types, values) =
            of("select a from t where id = 5 and t.n='it''s' and big = 5000000000 limit 3")
                .unwrap();
        assert_eq!(
            text,
            "select a from t where id = $1 and t.n=$2 and big = $3 limit 3"
        );
        assert_eq!(types, [23, 0, 20]);
        assert_eq!(values, ["5", "it's", "5000000000"]);
        let (text, ..) = of("UPDATE t SET \"a b\" = 7, v = v + 1 WHERE k = 1").unwrap();
        assert_eq!(text, "UPDATE t SET \"a b\" = $1, v = v + 1 WHERE k = $2");
    }

    #[test]
    fn what_may_mean_something_else_stays() {
        for sql in [
            "select 1 from t where 1 = 1 order by 1",
            "select 1 from t where a = 1.5 or a = 1e3 or a <= 3 or a >= 4 or f(x) = 3",
            "select f(a => 5)",
            "select 1 from t where a = e'x'",
            "select 1 from t where a = U&'x'",
            "select 1 from t where a = 1 -- b = 2",
            "select 1 from t where a = 1 /* b */",
            "select 1 from t where a = $1 and b = 2",
            "select 1 from t where a = $$x$$ and b = 2",
            "select 1 from t where a = 'x'\n'y'",
            "select 1 from t where a = 'x",
            "select 1 from t where a = 99999999999999999999",
            "select 1 from t where a = -5",
            "select 1 from pg_class where oid = 't' ::regclass or a = 5::int8",
            "explain select 1 from t where a = 5",
        ] {
            assert_eq!(of(sql), None, "{sql}");
        }
    }
}
