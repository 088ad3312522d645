//! Blocks as Oracle's clients send them, without DO and its quotes, and definitions with a body that
//! has none: where one begins and ends in a message.
//!
//! `DECLARE .. BEGIN .. END;` and `BEGIN .. END;` are no statements of PostgreSQL's, in which
//! DECLARE is a cursor's and BEGIN begins a transaction; these stay what they are. A block goes on
//! to a line that has nothing but `/`, or to the end of the message. So does a CREATE TRIGGER that has
//! a body where PostgreSQL has EXECUTE FUNCTION.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::dialect::Postgres;
use super::tokens;

/// Whether a block begins a text.
pub fn begins(text: &str) -> bool {
    let word = first_word(text);
    let is = |wanted: &str| word.eq_ignore_ascii_case(wanted);
    if !is("begin") && !is("declare") && !text.trim_start().starts_with("<<") {
        return false;
    }
    // What a tokenizer takes for the end of a string may be elsewhere in PL, but not so near.
    let found = Tokenizer::new(&Postgres, text).tokenize_with_location();
    let mut tokens = found.unwrap_or_default();
    tokens.retain(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF));
    let mut at = 0;
    if tokens.first().is_some_and(|t| t.token == Token::ShiftLeft) {
        at = 3;
    }
    let word = |n: usize| tokens::keyword(tokens.get(at + n));
    match word(0) {
        Keyword::BEGIN => !is_transaction(&tokens[at..]),
        Keyword::DECLARE => {
            !is_cursor(&tokens[at..])
                && tokens
                    .iter()
                    .any(|t| tokens::keyword(Some(t)) == Keyword::BEGIN)
        }
        _ => false,
    }
}

/// Whether a definition with a body in Oracle's form begins a text.
pub fn defines(text: &str) -> bool {
    if !first_word(text).eq_ignore_ascii_case("create") {
        return false;
    }
    let found = Tokenizer::new(&Postgres, text).tokenize_with_location();
    let mut tokens = found.unwrap_or_default();
    tokens.retain(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF));
    let is = |n: usize, wanted: &str| is_word(tokens.get(n), wanted);
    let mut at = 1;
    if is(at, "or") && is(at + 1, "replace") {
        at += 2;
    }
    at += usize::from(is(at, "editionable") || is(at, "noneditionable"));
    let behind = tokens.get(at + 2..).unwrap_or_default();
    if is(at, "trigger") {
        return has_body(behind);
    }
    let procedure = is(at, "procedure");
    (procedure || is(at, "function")) && is_routine(behind, procedure)
}

/// Whether what stands behind the name of a procedure or a function comes to a body without quotes.
fn is_routine(mut tokens: &[TokenWithSpan], procedure: bool) -> bool {
    if tokens.first().is_some_and(|t| t.token == Token::Period) {
        tokens = tokens.get(2..).unwrap_or_default();
    }
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ if depth > 0 => {}
            _ => {
                let is = |wanted: &str| is_word(Some(token), wanted);
                let begins_body =
                    |t: &TokenWithSpan| matches!(t.token, Token::Word(_) | Token::ShiftLeft);
                return match procedure {
                    true => {
                        is("is")
                            || is("authid")
                            || is("as") && tokens.get(at + 1).is_some_and(begins_body)
                    }
                    false => is("return"),
                };
            }
        }
    }
    false
}

fn is_word(token: Option<&TokenWithSpan>, wanted: &str) -> bool {
    match token.map(|t| &t.token) {
        Some(Token::Word(w)) => w.quote_style.is_none() && w.value.eq_ignore_ascii_case(wanted),
        _ => false,
    }
}

/// Whether what stands behind a trigger's name comes to a body. A table or a column may have the
/// name that begins one.
fn has_body(tokens: &[TokenWithSpan]) -> bool {
    let mut before: Option<&TokenWithSpan> = None;
    for (at, token) in tokens.iter().enumerate() {
        let is = |wanted: &str| is_word(Some(token), wanted);
        let follows = ["of", "on"].iter().any(|w| is_word(before, w))
            || before.is_some_and(|b| matches!(b.token, Token::Comma | Token::Period));
        let next = tokens.get(at + 1);
        match token.token {
            Token::SemiColon => return false,
            Token::ShiftLeft => return true,
            _ if is("execute") && (is_word(next, "function") || is_word(next, "procedure")) => {
                return false;
            }
            _ if !follows && (is("begin") || is("declare")) => return true,
            _ => before = Some(token),
        }
    }
    false
}

/// The first word behind blanks and comments; comments within each other are not followed.
fn first_word(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        let behind = match (rest.strip_prefix("--"), rest.strip_prefix("/*")) {
            (Some(comment), _) => comment.split_once('\n'),
            (None, Some(comment)) => comment.split_once("*/"),
            (None, None) => break,
        };
        rest = behind.map_or("", |(_, rest)| rest.trim_start());
    }
    let end = rest.find(|c: char| !c.is_ascii_alphabetic());
    &rest[..end.unwrap_or(rest.len())]
}

/// Whether what begins with BEGIN begins a transaction.
fn is_transaction(tokens: &[TokenWithSpan]) -> bool {
    let Some(second) = tokens.get(1) else {
        return true;
    };
    let modes = [
        "work",
        "transaction",
        "isolation",
        "read",
        "not",
        "deferrable",
    ];
    match &second.token {
        Token::SemiColon => true,
        Token::Word(w) => modes.iter().any(|mode| w.value.eq_ignore_ascii_case(mode)),
        _ => false,
    }
}

/// Whether what begins with DECLARE is a cursor.
fn is_cursor(tokens: &[TokenWithSpan]) -> bool {
    let options = ["binary", "asensitive", "insensitive", "no", "scroll"];
    let words = tokens.iter().skip(2).map(|t| match &t.token {
        Token::Word(w) => w.value.to_lowercase(),
        _ => String::new(),
    });
    let mut behind = words.skip_while(|word| options.contains(&word.as_str()));
    behind.next().is_some_and(|word| word == "cursor")
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
