//! What blocks of Oracle's have besides PL/pgSQL's words.
//!
//! - A SELECT INTO has exactly one row, or is `no_data_found` or `too_many_rows`.
//! - `DBMS_OUTPUT.PUT_LINE(x)` tells the client.
//! - `EXECUTE IMMEDIATE` is EXECUTE.
//! - Conditions have Oracle's names.
//! - `:NEW` and `:OLD` are NEW and OLD.
//! - `RAISE_APPLICATION_ERROR(number, message)` is an error with that number.
//! - `CURSOR c IS query`; `c%FOUND` and its kin, also of `SQL`.
//! - `e EXCEPTION`, `PRAGMA EXCEPTION_INIT`, `RAISE e`, `WHEN e`.
//! - The record of a loop over a query is the loop's own.
//! - `p(1);` and `p;` are CALLs; `DBMS_LOCK.SLEEP` and `DBMS_SESSION.SLEEP` wait.

use super::Parser;
use crate::Error;
use crate::lex::{self, Kind, Token};
use crate::tree::{
    Block, BoundCursor, CURSOR_ATTRIBUTES, Condition, Declaration, Declared, Level, Raise, Raised,
    RowsOf, Sql, Target, TypeName, What,
};

/// Oracle's names of conditions, and PL/pgSQL's.
const CONDITIONS: [(&str, &str); 6] = [
    ("dup_val_on_index", "unique_violation"),
    ("zero_divide", "division_by_zero"),
    ("value_error", "data_exception"),
    ("invalid_number", "invalid_text_representation"),
    ("invalid_cursor", "invalid_cursor_name"),
    ("timeout_on_resource", "lock_not_available"),
];

/// An exception that a body declares.
pub(super) struct Exception {
    name: String,
    id: u32,
    /// Oracle's number of the errors that it stands for, if it was said.
    number: Option<i32>,
}

/// Whether a variable is a cursor.
pub(super) fn is_cursor(what: &Declared) -> bool {
    match what {
        Declared::Cursor(_) => true,
        Declared::Variable { ty, .. } => match ty {
            TypeName::Plain(text) => {
                let text = text.to_lowercase();
                text == "sys_refcursor" || text == "refcursor"
            }
            TypeName::Of(_) | TypeName::RowOf(_) => false,
        },
        Declared::Alias(_) => false,
    }
}

/// The names of what a cursor is asked for.
pub(super) fn attributes(cursor: &str) -> Vec<String> {
    let each = CURSOR_ATTRIBUTES.iter();
    each.map(|attribute| format!("{cursor}%{attribute}"))
        .collect()
}

/// The bytes at which colons stand right before a name, or a number, that is no bound of an array's
/// slice, with that name or number.
fn colons(text: &str) -> Result<Vec<(usize, Token)>, Error> {
    let tokens = lex::tokens(text)?;
    let mut found = Vec::new();
    // Of the brackets and parentheses around: whether it is one in which a slice may stand.
    let mut around = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let sign = &text[token.start..token.end];
        if !token.is_sign(sign) {
            continue;
        }
        let before = at.checked_sub(1).map(|at| &tokens[at]);
        match sign {
            "[" => around.push(before.is_some_and(|t| is_operand(t) && !t.is_word("array"))),
            "(" => around.push(false),
            "]" | ")" => {
                around.pop();
            }
            _ => {}
        }
        let bounds = sign == ":"
            && around.last() == Some(&true)
            && before.is_some_and(|t| is_operand(t) || t.is_sign("["));
        let is_colon = sign.ends_with(':') && sign != "::" && !bounds;
        if let Some(next) = tokens.get(at + 1)
            && is_colon
            && token.end == next.start
            && (next.name().is_some() || next.kind == Kind::Number)
        {
            found.push((token.end - 1, next.clone()));
        }
    }
    Ok(found)
}

/// Whether a token may end an expression.
fn is_operand(token: &Token) -> bool {
    !matches!(token.kind, Kind::Sign(_)) || token.is_sign(")") || token.is_sign("]")
}

/// The text with a blank for each colon of `:NEW` and `:OLD`: all else stays where it stood.
pub(super) fn without_colons(text: &str) -> Result<String, Error> {
    let mut plain = text.to_string();
    for (at, word) in colons(text)? {
        if word.is_word("new") || word.is_word("old") {
            plain.replace_range(at..=at, " ");
        }
    }
    Ok(plain)
}

/// The text of a trigger's body in which the rows have these names behind their colons, with
/// `:NEW` and `:OLD` for them.
pub fn rows_renamed(text: &str, new: &str, old: &str) -> Result<String, Error> {
    let mut renamed = text.to_string();
    for (_, word) in colons(text)?.into_iter().rev() {
        let own = match word.name() {
            Some(name) if name == new => "new",
            Some(name) if name == old => "old",
            _ => continue,
        };
        renamed.replace_range(word.start..word.end, own);
    }
    Ok(renamed)
}

/// What a cursor, or `SQL`, is asked for, if such words come first: the name, and the last word.
fn attribute_of(tokens: &[Token]) -> Option<(String, &Token)> {
    let [cursor, percent, attribute, ..] = tokens else {
        return None;
    };
    let name = cursor.name()?;
    let asked = attribute.name()?;
    let close = cursor.end == percent.start && percent.end == attribute.start;
    let known = CURSOR_ATTRIBUTES.contains(&asked);
    (close && percent.is_sign("%") && known).then(|| (format!("{name}%{asked}"), attribute))
}

/// A text that is executed, with `$1`, `$2` for the names or numbers of parameters behind colons,
/// in the order in which they stand.
pub fn numbered_parameters(text: &str) -> Result<String, Error> {
    let (mut numbered, mut end) = (String::new(), 0);
    for ((colon, name), number) in colons(text)?.into_iter().zip(1..) {
        numbered.push_str(&text[end..colon]);
        numbered.push_str(&format!("${number}"));
        end = name.end;
    }
    numbered.push_str(&text[end..]);
    Ok(numbered)
}

impl Parser<'_> {
    /// A statement that only Oracle's blocks have.
    pub(super) fn oracle_statement(&mut self) -> Result<Option<What>, Error> {
        let word = |n: usize, w: &str| self.ahead(n).is_some_and(|t| t.is_word(w));
        let sign = |n: usize, s: &str| self.ahead(n).is_some_and(|t| t.is_sign(s));
        if word(0, "execute") && word(1, "immediate") {
            self.at += 2;
            return self.execute().map(Some);
        }
        if (word(0, "dbms_lock") || word(0, "dbms_session")) && word(2, "sleep") && sign(3, "(") {
            self.at += 4;
            return self.sleep().map(Some);
        }
        if word(0, "rollback") && word(1, "to") || word(0, "savepoint") && !sign(1, "(") {
            return Err(self.unsupported("savepoints within a body: use a block with EXCEPTION"));
        }
        for refused in ["forall", "goto"] {
            if word(0, refused) && !sign(1, "(") {
                return Err(self.unsupported(&refused.to_uppercase()));
            }
        }
        if word(0, "raise_application_error") && sign(1, "(") {
            self.at += 2;
            return self.numbered_error().map(Some);
        }
        if !word(0, "dbms_output") || !sign(1, ".") {
            return Ok(None);
        }
        if !word(2, "put_line") || !sign(3, "(") {
            return Err(self.unsupported("DBMS_OUTPUT but for PUT_LINE"));
        }
        self.at += 4;
        let line = self.sql(&[")"], &[])?;
        self.expect_sign(")")?;
        self.expect_sign(";")?;
        let what = Raised::Format {
            format: "%".to_string(),
            arguments: vec![line],
        };
        Ok(Some(What::Raise(Raise {
            level: Level::Output,
            what,
            options: Vec::new(),
        })))
    }
    /// What a name means behind WHEN and RAISE.
    pub(super) fn condition_named(&self, name: String) -> Condition {
        if !self.oracle {
            return Condition::Name(name);
        }
        if let Some(own) = self.exceptions.iter().rev().find(|e| e.name == name) {
            let id = own.id;
            return match own.number {
                Some(number) => Condition::Number { name, number },
                None => Condition::Own { name, id },
            };
        }
        let known = CONDITIONS.iter().find(|(oracle, _)| *oracle == name);
        Condition::Name(known.map_or(name, |(_, ours)| ours.to_string()))
    }

    pub(super) fn is_cursor(&self, path: &[String]) -> bool {
        let [name] = path else { return false };
        let known = self.cursors.iter().rev().find(|(n, _)| n == name);
        known.is_some_and(|(_, is_cursor)| *is_cursor)
    }

    /// Takes a declaration that makes no variable: of an exception, or a pragma. False: it is none.
    pub(super) fn oracle_declaration(&mut self) -> Result<bool, Error> {
        let word = |n: usize, w: &str| self.ahead(n).is_some_and(|t| t.is_word(w));
        let name = |n: usize| self.ahead(n).and_then(Token::name).is_some();
        if word(1, "exception") && self.ahead(2).is_some_and(|t| t.is_sign(";")) {
            let name = self.name()?;
            self.at += 2;
            self.exceptions_ever += 1;
            self.exceptions.push(Exception {
                name,
                id: self.exceptions_ever,
                number: None,
            });
            return Ok(true);
        }
        if word(0, "pragma") && word(1, "exception_init") {
            self.at += 2;
            self.exception_init()?;
            return Ok(true);
        }
        if (word(0, "type") || word(0, "subtype")) && name(1) && word(2, "is") {
            return Err(self.unsupported("types that a body declares"));
        }
        if (word(0, "procedure") || word(0, "function")) && name(1) {
            return Err(self.unsupported("procedures and functions within a body"));
        }
        if word(0, "pragma") && name(1) {
            self.at += 1;
            let pragma = self.name()?;
            return Err(self.unsupported(&format!("PRAGMA {}", pragma.to_uppercase())));
        }
        Ok(false)
    }

    /// Behind the words PRAGMA EXCEPTION_INIT.
    fn exception_init(&mut self) -> Result<(), Error> {
        self.expect_sign("(")?;
        let at = self.at;
        let name = self.name()?;
        self.expect_sign(",")?;
        let negative = self.accept_sign("-");
        let number = self.peek().filter(|t| t.kind == Kind::Number);
        let number = number.and_then(|t| self.text[t.start..t.end].parse::<i32>().ok());
        let Some(number) = number else {
            return Err(self.unexpected());
        };
        self.at += 1;
        let known = self.exceptions.iter_mut().rev().find(|e| e.name == name);
        let Some(known) = known else {
            self.at = at;
            return Err(self.syntax("no exception of this name is declared before the pragma,"));
        };
        known.number = Some(if negative { -number } else { number });
        self.expect_sign(")")?;
        self.expect_sign(";")
    }

    /// The declaration of a cursor with the word CURSOR before its name.
    pub(super) fn oracle_cursor(&mut self) -> Result<Option<(String, BoundCursor)>, Error> {
        let behind = self.ahead(2);
        let is_one = self.oracle
            && self.is("cursor")
            && self.ahead(1).and_then(Token::name).is_some()
            && behind.is_some_and(|t| t.is_word("is") || t.is_word("return") || t.is_sign("("));
        if !is_one {
            return Ok(None);
        }
        self.at += 1;
        let name = self.name()?;
        if self.is("return") {
            return Err(self.unsupported("RETURN of a cursor"));
        }
        let cursor = self.bound_query(None)?;
        Ok(Some((name, cursor)))
    }

    /// The text of tokens, in which what a cursor is asked for is one name in quotes.
    pub(super) fn with_attributes(&self, from: usize, to: usize) -> String {
        let tokens = &self.tokens[from..to];
        let (mut text, mut end) = (String::new(), tokens.first().map_or(0, |t| t.start));
        let mut at = 0;
        while let Some(first) = tokens.get(at) {
            text.push_str(&self.text[end..first.start]);
            let asked = attribute_of(&tokens[at..]);
            let last = match &asked {
                Some((name, last)) => {
                    text.push_str(&format!("\"{}\"", name.replace('"', "\"\"")));
                    at += 2;
                    *last
                }
                None => {
                    text.push_str(&self.text[first.start..first.end]);
                    first
                }
            };
            end = last.end;
            at += 1;
        }
        text
    }

    pub(super) fn refuse_bulk(&self) -> Result<(), Error> {
        let collects = self.ahead(1).is_some_and(|t| t.is_word("collect"));
        match self.oracle && self.is("bulk") && collects {
            true => Err(self.unsupported("BULK COLLECT")),
            false => Ok(()),
        }
    }

    /// A loop over the rows of a query, whose record is the loop's own.
    pub(super) fn for_own_record(
        &mut self,
        label: Option<String>,
        (name, targets): (String, Vec<Target>),
        query: Sql,
    ) -> Result<What, Error> {
        let line = self.line();
        let in_sight = self.cursors.len();
        self.cursors.push((name.clone(), false));
        let body = self.loop_body(label.as_deref())?;
        self.cursors.truncate(in_sight);
        let over = What::ForRows {
            label,
            targets,
            rows: RowsOf::Query(query),
            body,
        };
        let record = Declared::Variable {
            ty: TypeName::Plain("record".to_string()),
            constant: false,
            not_null: false,
            default: None,
        };
        Ok(What::Block(Block {
            line,
            label: None,
            declarations: vec![Declaration {
                line,
                name,
                what: record,
                attributes: Vec::new(),
            }],
            body: vec![crate::tree::Statement { line, what: over }],
            handlers: None,
        }))
    }

    /// Whether a procedure's name comes next, with its arguments or without.
    pub(super) fn is_call(&self) -> bool {
        const OTHERS: [&str; 9] = [
            "select",
            "values",
            "with",
            "insert",
            "update",
            "delete",
            "vacuum",
            "analyze",
            "checkpoint",
        ];
        if OTHERS.iter().any(|word| self.is(word)) {
            return false;
        }
        let mut n = 1;
        while self.ahead(n).is_some_and(|t| t.is_sign("."))
            && self.ahead(n + 1).and_then(Token::name).is_some()
        {
            n += 2;
        }
        self.ahead(n)
            .is_some_and(|t| t.is_sign("(") || t.is_sign(";"))
    }

    /// A procedure's name with its arguments, as a CALL.
    pub(super) fn a_call(&mut self) -> Result<What, Error> {
        let mut sql = self.sql(&[";"], &[])?;
        self.expect_sign(";")?;
        let arguments = if sql.text.ends_with(')') { "" } else { "()" };
        sql.text = format!("CALL {}{arguments}", sql.text);
        Ok(What::Execute { sql, into: None })
    }

    /// Behind the parenthesis of DBMS_LOCK.SLEEP: so many seconds.
    fn sleep(&mut self) -> Result<What, Error> {
        let mut seconds = self.sql(&[")"], &[])?;
        self.expect_sign(")")?;
        self.expect_sign(";")?;
        seconds.text = format!("pg_catalog.pg_sleep({})", seconds.text);
        Ok(What::Perform(seconds))
    }

    /// Behind the parenthesis of RAISE_APPLICATION_ERROR. Its third argument says whether errors
    /// that led to this one are told too, which they are in the context of each error.
    fn numbered_error(&mut self) -> Result<What, Error> {
        let number = self.sql(&[","], &[])?;
        self.expect_sign(",")?;
        let message = self.sql(&[",", ")"], &[])?;
        if self.accept_sign(",") && !self.accept("true") {
            self.expect("false")?;
        }
        self.expect_sign(")")?;
        self.expect_sign(";")?;
        Ok(What::RaiseNumber { number, message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colons_of_rows_become_blanks_and_others_stay() {
        let text = "x:=:new.a||:OLD.b; y := ':new' || :newer || a::new -- :new";
        let plain = "x:= new.a|| OLD.b; y := ':new' || :newer || a::new -- :new";
        assert_eq!(without_colons(text).as_deref(), Ok(plain));
    }

    #[test]
    fn rows_of_other_names_are_new_and_old() {
        let text = ":n.a := :o.a; n := ':n'; :\"O\".b := 1;";
        let renamed = ":new.a := :old.a; n := ':n'; :\"O\".b := 1;";
        assert_eq!(rows_renamed(text, "n", "o").as_deref(), Ok(renamed));
    }

    #[test]
    fn colons_between_the_bounds_of_slices_stay() {
        let text = "x := (array[1,2,3])[1:2] || a[1:new] || a[:old] || a[:new.x + :new.i];";
        assert_eq!(
            without_colons(text).as_deref(),
            Ok("x := (array[1,2,3])[1:2] || a[1:new] || a[:old] || a[:new.x +  new.i];")
        );
        let text = "select a[1:2], b[x:y], array[:x, :2], a[f(:3)], (:4)[:5] from t where c=:c";
        assert_eq!(
            numbered_parameters(text).as_deref(),
            Ok("select a[1:2], b[x:y], array[$1, $2], a[f($3)], ($4)[:5] from t where c=$5")
        );
    }

    #[test]
    fn a_body_begins_with_its_declarations_and_ends_with_its_name() {
        let body = super::super::parse_oracle("x number; begin x := 1; end p;");
        let body = body.expect("it can be read");
        assert_eq!(body.block.declarations.len(), 1);
        assert_eq!(body.end_name.as_deref(), Some("p"));
        assert!(super::super::parse_oracle("begin begin null; end p; end;").is_err());
    }
}
