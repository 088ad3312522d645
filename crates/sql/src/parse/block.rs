//! Blocks as Oracle's clients send them, without DO and its quotes, and definitions with a body
//! that has none: where one begins and ends in a message.
//!
//! `DECLARE .. BEGIN .. END;` and `BEGIN .. END;` are no statements of PostgreSQL's, in which
//! DECLARE is a cursor's and BEGIN begins a transaction; these stay what they are. A block goes on
//! to a line that has nothing but `/`, or to the end of the message. So does a CREATE TRIGGER that
//! has a body where PostgreSQL has EXECUTE FUNCTION.
//!
//! **Invariant.** Looking for all beginnings in a message takes time in proportion to its length: a
//! search ends with its statement, or its having been in vain is remembered ([`Searched`]).

use super::split;

/// What a text is made of, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece<'s> {
    /// A word without quotes, or a number.
    Word(&'s str),
    /// A name in quotes.
    Name,
    /// A string, in quotes of any form.
    Text,
    Sign(u8),
}

impl Piece<'_> {
    fn is(self, wanted: &str) -> bool {
        matches!(self, Piece::Word(word) if word.eq_ignore_ascii_case(wanted))
    }
}

/// Goes over a text piece by piece, and no farther than it is asked: of a message of many
/// statements each is looked at.
struct Pieces<'s> {
    text: &'s str,
    at: usize,
}

impl<'s> Iterator for Pieces<'s> {
    type Item = Piece<'s>;

    fn next(&mut self) -> Option<Piece<'s>> {
        self.at = split::blanks_end(self.text, self.at);
        let (bytes, from) = (self.text.as_bytes(), self.at);
        let first = *bytes.get(from)?;
        if split::is_word(first) {
            let rest = &bytes[from..];
            let length = rest.iter().position(|b| !split::is_word(*b));
            let end = from + length.unwrap_or(rest.len());
            let word = &self.text[from..end];
            if let Some((quote, piece)) = prefixed(word, &bytes[end..]) {
                self.at = split::token_end(self.text, end + quote);
                return Some(piece);
            }
            self.at = end;
            return Some(Piece::Word(word));
        }
        self.at = split::token_end(self.text, from);
        Some(match first {
            b'"' => Piece::Name,
            b'\'' => Piece::Text,
            b'$' if self.at > from + 1 => Piece::Text,
            sign => Piece::Sign(sign),
        })
    }
}

fn pieces(text: &str) -> Pieces<'_> {
    Pieces { text, at: 0 }
}

/// What a word comes to that is the prefix of what stands in quotes right behind it, as in E'' and
/// U&"", and how many bytes behind the word the quote is.
fn prefixed(word: &str, behind: &[u8]) -> Option<(usize, Piece<'static>)> {
    let is = |prefix: &str| word.eq_ignore_ascii_case(prefix);
    match behind {
        [b'\'', ..] if ["e", "b", "x", "n"].into_iter().any(is) => Some((0, Piece::Text)),
        [b'&', b'\'', ..] if is("u") => Some((1, Piece::Text)),
        [b'&', b'"', ..] if is("u") => Some((1, Piece::Name)),
        _ => None,
    }
}

/// What searches in a message have shown of its rest.
#[derive(Default)]
pub struct Searched {
    /// BEGIN stands nowhere in it.
    without_begin: bool,
}

/// Whether a block begins a text, which is the rest of a message.
pub fn begins(text: &str, searched: &mut Searched) -> bool {
    let mut pieces = pieces(text);
    let mut first = pieces.next();
    if first == Some(Piece::Sign(b'<')) {
        // The label: its name, and the signs around it.
        first = pieces.nth(4 - 1);
        if first == Some(Piece::Sign(b'>')) {
            first = pieces.next();
        }
    }
    match first {
        Some(word) if word.is("begin") => !pieces.next().is_none_or(begins_transaction),
        Some(word) if word.is("declare") => {
            // The name; a cursor says so behind it.
            pieces.next();
            let options = ["binary", "asensitive", "insensitive", "no", "scroll"];
            let behind = pieces.find(|piece| !options.iter().any(|word| piece.is(word)));
            let is_cursor = behind.is_none_or(|piece| piece.is("cursor"));
            if is_cursor || searched.without_begin {
                return false;
            }
            let found = behind.is_some_and(|p| p.is("begin")) || pieces.any(|p| p.is("begin"));
            searched.without_begin = !found;
            found
        }
        _ => false,
    }
}

/// Whether what stands behind BEGIN says that this begins a transaction.
fn begins_transaction(second: Piece<'_>) -> bool {
    let modes = [
        "work",
        "transaction",
        "isolation",
        "read",
        "not",
        "deferrable",
    ];
    second == Piece::Sign(b';') || modes.iter().any(|mode| second.is(mode))
}

/// Whether a definition with a body in Oracle's form begins a text.
pub fn defines(text: &str) -> bool {
    let mut pieces = pieces(text);
    if !pieces.next().is_some_and(|piece| piece.is("create")) {
        return false;
    }
    let passed = ["or", "replace", "editionable", "noneditionable"];
    let kind = pieces.find(|piece| !passed.iter().any(|word| piece.is(word)));
    let is = |wanted: &str| kind.is_some_and(|kind| kind.is(wanted));
    let (trigger, procedure) = (is("trigger"), is("procedure"));
    // The name.
    if !trigger && !procedure && !is("function") || pieces.next().is_none() {
        return false;
    }
    match trigger {
        true => has_body(pieces),
        false => is_routine(pieces, procedure),
    }
}

/// Whether what stands behind the name of a procedure or a function comes to a body without quotes.
fn is_routine(mut pieces: Pieces<'_>, procedure: bool) -> bool {
    let mut depth = 0;
    while let Some(piece) = pieces.next() {
        match piece {
            Piece::Sign(b';') => return false,
            Piece::Sign(b'(') => depth += 1,
            Piece::Sign(b')') => depth -= 1,
            _ if depth > 0 => {}
            // The name has a schema before it.
            Piece::Sign(b'.') => {
                pieces.next();
            }
            _ if procedure => {
                let begins_body = |p: Piece<'_>| !matches!(p, Piece::Text | Piece::Sign(b';'));
                return piece.is("is")
                    || piece.is("authid")
                    || piece.is("as") && pieces.next().is_some_and(begins_body);
            }
            _ => return piece.is("return") && is_returned_type(pieces),
        }
    }
    false
}

/// Words that stand between the type of a function in Oracle's form and its body, and behind no
/// expression.
pub const CLAUSES: [&str; 7] = [
    "authid",
    "deterministic",
    "parallel_enable",
    "pipelined",
    "result_cache",
    "accessible",
    "aggregate",
];

/// Words behind an IS that is no word before a body, but an operator.
pub const TESTS: [&str; 5] = ["null", "not", "true", "false", "distinct"];

/// Whether a type stands behind RETURN, which something of Oracle's form follows, and not the
/// expression that PostgreSQL has there.
fn is_returned_type(mut pieces: Pieces<'_>) -> bool {
    let mut depth = 0;
    while let Some(piece) = pieces.next() {
        match piece {
            Piece::Sign(b';') => return false,
            Piece::Sign(b'(') => depth += 1,
            Piece::Sign(b')') => depth -= 1,
            _ if depth > 0 => {}
            _ if piece.is("is") || piece.is("as") => {
                let behind = pieces.next();
                return !behind.is_some_and(|p| TESTS.iter().any(|word| p.is(word)));
            }
            _ if CLAUSES.iter().any(|word| piece.is(word)) => return true,
            _ => {}
        }
    }
    false
}

/// Whether what stands behind a trigger's name comes to a body. A table or a column may have the
/// name that begins one.
fn has_body(pieces: Pieces<'_>) -> bool {
    let (mut before, mut depth) = (Piece::Name, 0);
    for piece in pieces {
        let follows = ["of", "on", "as", "table"]
            .iter()
            .any(|word| before.is(word))
            || matches!(before, Piece::Sign(b',') | Piece::Sign(b'.'));
        match piece {
            Piece::Sign(b';') => return false,
            // The condition of WHEN.
            Piece::Sign(b'(') => depth += 1,
            Piece::Sign(b')') => depth -= 1,
            _ if depth > 0 => {}
            Piece::Sign(b'<') if before == piece => return true,
            _ if before.is("execute") && (piece.is("function") || piece.is("procedure")) => {
                return false;
            }
            _ if !follows && (piece.is("begin") || piece.is("declare")) => return true,
            _ => before = piece,
        }
    }
    false
}

/// How many bytes of a text, which a block begins, are the block's, and where what follows begins.
pub fn end(text: &str) -> (usize, usize) {
    let mut from = 0;
    for line in text.split_inclusive('\n') {
        if line.trim() == "/" {
            return (from, from + line.len());
        }
        from += line.len();
    }
    (text.len(), text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_told_from_transactions_and_cursors() {
        for block in [
            "declare x int; begin null; end;",
            "DECLARE\n  x varchar2(10) := 'a;b';\nBEGIN\n null; END",
            "begin null; end;",
            "-- a word\nbegin insert into t values (1); end;",
            "begin <<l>> loop exit; end loop; end;",
            "<<outer>> begin null; end;",
        ] {
            assert!(begins(block, &mut Searched::default()), "{block}");
        }
        for other in [
            "begin",
            "begin;",
            "begin; select 1; end;",
            "begin work",
            "begin transaction isolation level repeatable read",
            "begin read only",
            "begin not deferrable",
            "declare c cursor for select 1",
            "declare c binary no scroll cursor with hold for select 1",
            "declare x int",
            "select 1",
            "beginning",
            "",
        ] {
            assert!(!begins(other, &mut Searched::default()), "{other}");
        }
    }

    #[test]
    fn triggers_with_bodies_are_told_from_those_that_run_functions() {
        for body in [
            "create trigger t before insert on x for each row begin null; end;",
            "CREATE OR REPLACE EDITIONABLE TRIGGER s.t AFTER UPDATE OF a, b ON x\n DECLARE y int;BEGIN",
            "create trigger t after delete on begin <<l>> begin null; end;",
            "create trigger t after delete on x referencing old as o when (o.a >> 1 > 2) begin",
        ] {
            assert!(defines(body), "{body}");
        }
        for other in [
            "create trigger t after update of begin on x execute function f(); begin; commit",
            "create trigger begin after update on declare for each row execute procedure f()",
            "create trigger t after insert on x for each row",
            "create trigger t before insert on x when (new.a << 1 > 2) execute function f(); begin",
            "create trigger t after insert on x referencing new table as begin execute function f(",
            "create trigger t after insert on x referencing new table declare execute function f(",
            "create table t (a int); begin",
            "create",
        ] {
            assert!(!defines(other), "{other}");
        }
    }

    #[test]
    fn routines_with_bodies_are_told_from_those_in_quotes() {
        for body in [
            "create procedure p is begin null; end;",
            "create or replace procedure s.p (a in number, b number := f(1)) as x int; begin null; end",
            "create editionable procedure p authid definer is begin null; end",
            "create function f (a number) return number is begin return 1; end;",
            "create function f return number deterministic as begin return 1; end;",
            "create function f return s.t%type is nullable number; begin return 1; end;",
            "create function f return number pipelined;",
        ] {
            assert!(defines(body), "{body}");
        }
        for other in [
            "create procedure p() language sql as $$ select 1; $$",
            "create procedure p() as 'begin null; end' language plpgsql",
            "create procedure p() as E'begin null; end' language plpgsql; select 1",
            "create procedure p() as U&'begin null; end' language plpgsql; select 1",
            "create procedure p() as n'begin null; end'; create procedure p() as x'0' ",
            "create function f(a int, out b int) return a + 1; create table t as select 1",
            "create function f(a int, out b bool) return a is not null; select 1",
            "create function f(; begin return 1; end; )",
            "create procedure p(; begin null; end; ) is",
            "create function f() returns int as $$ begin return 1; end $$ language plpgsql",
            "create function f(a int) returns int return a + 1",
            "create procedure p",
        ] {
            assert!(!defines(other), "{other}");
        }
    }

    #[test]
    fn a_block_ends_at_a_slash_alone() {
        assert_eq!(end("begin x := 1 / 2; end;\n/\nselect 1"), (23, 25));
        assert_eq!(end("begin null; end;\n / "), (17, 20));
        assert_eq!(end("begin null; end;"), (16, 16));
    }
}
