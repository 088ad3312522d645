//! Blocks as Oracle's clients send them, without DO and its quotes, and definitions with a body that
//! has none: where one begins and ends in a message.
//!
//! `DECLARE .. BEGIN .. END;` and `BEGIN .. END;` are no statements of PostgreSQL's, in which
//! DECLARE is a cursor's and BEGIN begins a transaction; these stay what they are. A block goes on
//! to a line that has nothing but `/`, or to the end of the message. So does a CREATE TRIGGER that has
//! a body where PostgreSQL has EXECUTE FUNCTION.

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
            // What stands before a string, as E and U&, is no word of its own here.
            self.at = end;
            return Some(Piece::Word(&self.text[from..end]));
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

/// Whether a block begins a text.
pub fn begins(text: &str) -> bool {
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
            !is_cursor && (behind.is_some_and(|p| p.is("begin")) || pieces.any(|p| p.is("begin")))
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
            _ => return piece.is("return"),
        }
    }
    false
}

/// Whether what stands behind a trigger's name comes to a body. A table or a column may have the
/// name that begins one.
fn has_body(pieces: Pieces<'_>) -> bool {
    let mut before = Piece::Name;
    for piece in pieces {
        let follows = before.is("of")
            || before.is("on")
            || matches!(before, Piece::Sign(b',') | Piece::Sign(b'.'));
        match piece {
            Piece::Sign(b';') => return false,
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
            assert!(begins(block), "{block}");
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
            assert!(!begins(other), "{other}");
        }
    }

    #[test]
    fn triggers_with_bodies_are_told_from_those_that_run_functions() {
        for body in [
            "create trigger t before insert on x for each row begin null; end;",
            "CREATE OR REPLACE EDITIONABLE TRIGGER s.t AFTER UPDATE OF a, b ON x\n DECLARE y number; BEGIN",
            "create trigger t after delete on begin <<l>> begin null; end;",
        ] {
            assert!(defines(body), "{body}");
        }
        for other in [
            "create trigger t after update of begin on x execute function f(); begin; commit",
            "create trigger begin after update on declare for each row execute procedure f()",
            "create trigger t after insert on x for each row",
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
            "create or replace procedure s.p (a in number, b number := f(1)) as x int; begin null; end;",
            "create editionable procedure p authid definer is begin null; end",
            "create function f (a number) return number is begin return 1; end;",
            "create function f return number deterministic as begin return 1; end;",
        ] {
            assert!(defines(body), "{body}");
        }
        for other in [
            "create procedure p() language sql as $$ select 1; $$",
            "create procedure p() as 'begin null; end' language plpgsql",
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
