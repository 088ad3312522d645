//! `TABLE t`, which is `SELECT * FROM t`. The parser knows it within a query only, and takes what
//! follows for a part of it.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::keyword;

/// Writes out each `TABLE` that is a query.
pub fn write_out(tokens: &mut Vec<TokenWithSpan>) {
    for at in (0..tokens.len()).rev() {
        if keyword(tokens.get(at)) == Keyword::TABLE && is_query(tokens, at) {
            let span = tokens[at].span;
            let words = [
                Token::make_keyword("SELECT"),
                Token::Mul,
                Token::make_keyword("FROM"),
            ];
            tokens.splice(at..=at, words.map(|word| TokenWithSpan::new(word, span)));
        }
    }
}

/// Whether a query may begin here: at the beginning, in parentheses, behind the WITH or the INSERT
/// that it belongs to, and on the right of a set operator. Elsewhere TABLE is the kind of what is
/// defined, or an error.
fn is_query(tokens: &[TokenWithSpan], at: usize) -> bool {
    let Some(before) = at.checked_sub(1) else {
        return true;
    };
    let is_operator = |at: Option<usize>| {
        let keyword = at.map(|at| keyword(tokens.get(at)));
        matches!(
            keyword,
            Some(Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT)
        )
    };
    let first = keyword(tokens.first());
    match (&tokens[before].token, keyword(tokens.get(before))) {
        (Token::LParen, _) => true,
        // CREATE TABLE .. AS. Behind another AS it is the name of a column.
        (_, Keyword::AS) => {
            let mut earlier = tokens[..before].iter().map(|t| keyword(Some(t)));
            first == Keyword::CREATE && earlier.all(|word| word != Keyword::AS)
        }
        (Token::RParen, _) => matches!(first, Keyword::WITH | Keyword::INSERT),
        (_, Keyword::ALL | Keyword::DISTINCT) => is_operator(before.checked_sub(1)),
        // The name of a table into which is inserted.
        (Token::Word(_), Keyword::NoKeyword) => first == Keyword::INSERT,
        _ => is_operator(Some(before)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{parsed, statement};

    #[test]
    fn a_table_is_all_of_it() {
        for (short, long) in [
            ("table t", "select * from t"),
            (
                "TABLE public.\"T\" order by 1 limit 3;",
                "select * from public.\"T\" order by 1 limit 3",
            ),
            ("table t for update", "select * from t for update"),
            ("(table t)", "(select * from t)"),
            (
                "table t union all table s",
                "select * from t union all select * from s",
            ),
            (
                "values (1) except table t",
                "values (1) except select * from t",
            ),
            (
                "select a from (table t) x where b in (table s)",
                "select a from (select * from t) x where b in (select * from s)",
            ),
            (
                "with c as (table t) table c",
                "with c as (select * from t) select * from c",
            ),
            ("insert into t table s", "insert into t select * from s"),
            (
                "insert into t (a) table s returning a",
                "insert into t (a) select * from s returning a",
            ),
            (
                "create table u as table t",
                "create table u as select * from t",
            ),
            (
                "create view v as (table t)",
                "create view v as (select * from t)",
            ),
            (
                "select \"table\" from t as \"table\"",
                "select \"table\" from t as \"table\"",
            ),
        ] {
            assert_eq!(parsed(short), parsed(long));
        }
        for kept in [
            "select 1 as table from t",
            "create table u as select 1 as table",
            "create table t (a int)",
            "alter table t add b int",
            "drop table t",
            "truncate table t",
        ] {
            assert!(!parsed(kept).contains('*'), "{kept}");
        }
        for wrong in ["table", "table t u v", "table 3"] {
            let error = statement(wrong).expect_err(wrong);
            assert_eq!(error.sqlstate(), "42601", "{wrong}");
        }
    }
}
