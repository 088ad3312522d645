//! `a JOIN b JOIN c ON .. ON ..`: the second join is within the first, whose condition comes last.
//! The parser takes each join for one of all that stands before it, so what is within gets
//! parentheses.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::keyword;

/// A join whose condition has not come yet.
struct Open {
    /// The token behind JOIN.
    right: usize,
    /// Its right side has a join of its own.
    nested: bool,
}

/// Puts parentheses around joins that stand before the condition of the join around them.
pub fn put_parentheses(tokens: &mut Vec<TokenWithSpan>) {
    let mut added: Vec<(usize, Token)> = Vec::new();
    // Those of each parenthesis that is open.
    let mut open: Vec<Vec<Open>> = vec![Vec::new()];
    for at in 0..tokens.len() {
        match tokens[at].token {
            Token::LParen => open.push(Vec::new()),
            Token::RParen if open.len() > 1 => {
                open.pop();
            }
            _ => {}
        }
        let Some(joins) = open.last_mut() else { return };
        match keyword(tokens.get(at)) {
            Keyword::JOIN => {
                if let Some(around) = joins.last_mut()
                    && !around.nested
                {
                    around.nested = true;
                    added.push((around.right, Token::LParen));
                }
                if !is_without_condition(tokens, at) {
                    joins.push(Open {
                        right: at + 1,
                        nested: false,
                    });
                }
            }
            Keyword::ON | Keyword::USING => {
                let closes = joins.pop().is_some_and(|join| join.nested);
                if closes {
                    added.push((at, Token::RParen));
                }
            }
            // Another clause: joins without a condition are for the parser to refuse.
            Keyword::WHERE
            | Keyword::GROUP
            | Keyword::ORDER
            | Keyword::SELECT
            | Keyword::SET
            | Keyword::RETURNING => joins.clear(),
            _ => {}
        }
    }
    added.sort_by_key(|(at, _)| *at);
    for (at, token) in added.into_iter().rev() {
        let span = tokens[at].span;
        tokens.insert(at, TokenWithSpan::new(token, span));
    }
}

/// Whether it is a CROSS or NATURAL JOIN.
fn is_without_condition(tokens: &[TokenWithSpan], join: usize) -> bool {
    let mut words = tokens[..join].iter().rev().map(|t| keyword(Some(t)));
    let kinds = [
        Keyword::INNER,
        Keyword::OUTER,
        Keyword::LEFT,
        Keyword::RIGHT,
        Keyword::FULL,
    ];
    let first = words.find(|word| !kinds.contains(word));
    matches!(first, Some(Keyword::CROSS | Keyword::NATURAL))
}

#[cfg(test)]
mod tests {
    use super::super::parsed;

    #[test]
    fn a_join_before_the_condition_of_another_is_within_it() {
        for (ours, known) in [
            (
                "select 1 from a left join b join c on x on y join d on z",
                "select 1 from a left join (b join c on x) on y join d on z",
            ),
            (
                "select 1 from a join b join c join d on x on y on z",
                "select 1 from a join (b join (c join d on x) on y) on z",
            ),
            (
                "select 1 from a left join b cross join c on x",
                "select 1 from a left join (b cross join c) on x",
            ),
            (
                "select 1 from a join b natural left join c using (i)",
                "select 1 from a join (b natural left join c) using (i)",
            ),
        ] {
            assert_eq!(parsed(ours), parsed(known));
        }
        for plain in [
            "select 1 from a natural join b left join c on x",
            "select 1 from a join b on x join c on y cross join d",
            "select 1 from a join b on x in (select 1 from c join d on y) join e using (i)",
            "insert into t select 1 from a cross join b on conflict do nothing",
        ] {
            assert!(!parsed(plain).to_lowercase().contains("join ("), "{plain}");
        }
    }
}
