//! Cutting the text of a Query message at its semicolons, without parsing it: quotes, dollar quotes
//! and comments are all that can hide one, and the blocks of [`super::block`], which have some of
//! their own.

use super::block;

/// The statements of a text, without their semicolons; pieces with nothing but blanks and comments
/// are left out.
pub fn split(sql: &str) -> Vec<&str> {
    let bytes = sql.as_bytes();
    let mut pieces = Vec::new();
    let (mut start, mut at, mut meaningful) = (0, 0, false);
    let mut searched = block::Searched::default();
    while at < bytes.len() {
        let is_block = !meaningful
            && match bytes[at] {
                b'b' | b'B' | b'd' | b'D' | b'<' => block::begins(&sql[at..], &mut searched),
                b'c' | b'C' => block::defines(&sql[at..]),
                _ => false,
            };
        if is_block {
            let (end, next) = block::end(&sql[at..]);
            pieces.push(sql[start..at + end].trim());
            (start, at) = (at + next, at + next);
            continue;
        }
        let next = match bytes[at] {
            b';' => {
                if meaningful {
                    pieces.push(sql[start..at].trim());
                }
                start = at + 1;
                meaningful = false;
                at + 1
            }
            b'-' if bytes[at..].starts_with(b"--") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => comment_end(bytes, at).0,
            c => {
                meaningful |= !c.is_ascii_whitespace();
                token_end(sql, at)
            }
        };
        at = next;
    }
    if meaningful {
        pieces.push(sql[start..].trim());
    }
    pieces
}

/// Where blanks and comments end that begin at a byte.
pub(super) fn blanks_end(sql: &str, from: usize) -> usize {
    let bytes = sql.as_bytes();
    let mut at = from;
    while let Some(byte) = bytes.get(at) {
        at = match byte {
            b'-' if bytes[at..].starts_with(b"--") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => comment_end(bytes, at).0,
            byte if byte.is_ascii_whitespace() => at + 1,
            _ => break,
        };
    }
    at
}

pub(super) fn line_end(bytes: &[u8], from: usize) -> usize {
    bytes[from..]
        .iter()
        .position(|b| *b == b'\n')
        .map_or(bytes.len(), |n| from + n + 1)
}

/// Where a comment ends, and whether it is closed. Comments nest.
pub(super) fn comment_end(bytes: &[u8], from: usize) -> (usize, bool) {
    let (mut at, mut depth) = (from + 2, 1);
    while at < bytes.len() && depth > 0 {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
        } else {
            at += 1;
        }
    }
    (at.min(bytes.len()), depth == 0)
}

/// The end of whatever begins here: a quoted thing as a whole, otherwise one byte.
pub(super) fn token_end(sql: &str, at: usize) -> usize {
    let bytes = sql.as_bytes();
    match bytes[at] {
        b'\'' if is_escape_quote(bytes, at) => escape_string(bytes, at).1,
        b'\'' => quote_end(bytes, at, b'\'', false),
        b'"' => quote_end(bytes, at, b'"', false),
        b'$' if at == 0 || !is_word(bytes[at - 1]) => dollar_end(sql, at).0,
        _ => at + 1,
    }
}

/// Whether a quote begins a string with escapes: whether an `E` stands before it.
pub(super) fn is_escape_quote(bytes: &[u8], at: usize) -> bool {
    at > 0 && matches!(bytes[at - 1], b'e' | b'E') && !(at > 1 && is_word(bytes[at - 2]))
}

/// The pieces of a string with escapes, which may go on in the next lines, without their quotes;
/// and where it ends.
pub(super) fn escape_string(bytes: &[u8], quote: usize) -> (Vec<(usize, usize)>, usize) {
    let mut pieces = Vec::new();
    let mut quote = quote;
    loop {
        let end = quote_end(bytes, quote, b'\'', true);
        let is_closed = end > quote + 1 && bytes[end - 1] == b'\'';
        pieces.push((quote + 1, if is_closed { end - 1 } else { end }));
        match continuation(bytes, end) {
            Some(next) if is_closed => quote = next,
            _ => return (pieces, end),
        }
    }
}

/// The quote with which a string goes on behind blanks and comments with an end of line.
pub(super) fn continuation(bytes: &[u8], from: usize) -> Option<usize> {
    let (mut at, mut ends_line) = (from, false);
    loop {
        match bytes.get(at)? {
            b'\'' => return ends_line.then_some(at),
            b'\n' | b'\r' => {
                ends_line = true;
                at += 1;
            }
            b' ' | b'\t' | b'\x0c' => at += 1,
            b'-' if bytes[at..].starts_with(b"--") => {
                let end = line_end(bytes, at);
                ends_line |= bytes.get(end - 1) == Some(&b'\n');
                at = end;
            }
            _ => return None,
        }
    }
}

/// The end of a comment that begins at a place.
pub(super) fn skipped_end(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes[at] {
        b'-' if bytes[at..].starts_with(b"--") => Some(line_end(bytes, at)),
        b'/' if bytes[at..].starts_with(b"/*") => Some(comment_end(bytes, at).0),
        _ => None,
    }
}

pub(super) fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80
}

/// A doubled quote ends one string and begins the next, which comes to the same.
pub(super) fn quote_end(bytes: &[u8], from: usize, quote: u8, escapes: bool) -> usize {
    let mut at = from + 1;
    while at < bytes.len() {
        if escapes && bytes[at] == b'\\' {
            at += 2;
        } else if bytes[at] == quote {
            if escapes && bytes.get(at + 1) == Some(&quote) {
                at += 2;
                continue;
            }
            return at + 1;
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// Where a string in dollars ends, and the length of its tag; the next byte and zero if none begins
/// here.
pub(super) fn dollar_end(sql: &str, from: usize) -> (usize, usize) {
    let bytes = sql.as_bytes();
    let tag_length = bytes[from + 1..]
        .iter()
        .take_while(|b| is_word(**b))
        .count();
    let tag_end = from + 1 + tag_length;
    let starts_with_digit = bytes.get(from + 1).is_some_and(u8::is_ascii_digit);
    if bytes.get(tag_end) != Some(&b'$') || starts_with_digit {
        return (from + 1, 0);
    }
    let tag = &sql[from..=tag_end];
    let end = sql[tag_end + 1..]
        .find(tag)
        .map_or(sql.len(), |n| tag_end + 1 + n + tag.len());
    (end, tag.len())
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn semicolons_that_do_not_separate() {
        assert_eq!(
            split("select 1; select ';' ; ;\n-- x;\nselect 2"),
            ["select 1", "select ';'", "-- x;\nselect 2"]
        );
        assert_eq!(
            split("select $$;$$, $a$ ; $b$ ; $a$; x"),
            ["select $$;$$, $a$ ; $b$ ; $a$", "x"]
        );
        assert_eq!(
            split(r"select E'\';', 'it''s;', U&';'; y"),
            [r"select E'\';', 'it''s;', U&';'", "y"]
        );
        assert_eq!(
            split("select E'a' -- b\n '\\';', ';'; y"),
            ["select E'a' -- b\n '\\';', ';'", "y"]
        );
        assert_eq!(split("/* ; /* ; */ ; */ ;"), Vec::<&str>::new());
        assert_eq!(split("select \";\", $1;"), ["select \";\", $1"]);
        assert!(split("").is_empty() && split(" ; ;").is_empty());
    }

    #[test]
    fn what_begins_like_a_body_leaves_what_follows() {
        for first in [
            "create trigger t before insert on x when (new.a << 1 > 2) execute function f()",
            "create procedure p() as E'begin null; end' language plpgsql",
            "create function f(a int, out b int) return a + 1",
            "declare c cursor for select 1",
        ] {
            assert_eq!(split(&format!("{first}; select 2;")), [first, "select 2"]);
        }
    }

    #[test]
    fn beginnings_without_an_end_are_not_searched_to_the_end_of_the_message_each() {
        // A search to the end for each statement would take minutes.
        for first in [
            "declare a b;",
            "create function f(;",
            "create procedure p(;",
        ] {
            assert_eq!(split(&first.repeat(30_000)).len(), 30_000);
        }
    }
}
