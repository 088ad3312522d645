//! The clauses around a query's body: those behind a query in parentheses are its own, and `FETCH
//! FIRST` is a LIMIT.

use sqlparser::ast;

use super::forms;
use crate::error::{Error, Result};

/// A query in parentheses and the clauses behind it are one query.
pub fn merge(query: &mut ast::Query) -> Result<()> {
    fetched(query)?;
    while let ast::SetExpr::Query(inner) = &mut *query.body {
        fetched(inner)?;
        let inner = (**inner).clone();
        let twice = |what| Error::new("42601", format!("multiple {what} clauses not allowed"));
        query.with = one_of(query.with.take(), inner.with).ok_or_else(|| twice("WITH"))?;
        query.order_by =
            one_of(query.order_by.take(), inner.order_by).ok_or_else(|| twice("ORDER BY"))?;
        let (count, offset) = limits(query.limit_clause.take())?;
        let (inner_count, inner_offset) = limits(inner.limit_clause)?;
        let counts = [count.is_some(), query.fetch.is_some()];
        let inner_counts = [inner_count.is_some(), inner.fetch.is_some()];
        if counts.contains(&true) && inner_counts.contains(&true) {
            return Err(twice("LIMIT"));
        }
        let offset = one_of(offset, inner_offset).ok_or_else(|| twice("OFFSET"))?;
        query.fetch = query.fetch.take().or(inner.fetch);
        let limit = count.or(inner_count);
        if limit.is_some() || offset.is_some() {
            query.limit_clause = Some(ast::LimitClause::LimitOffset {
                limit,
                offset,
                limit_by: Vec::new(),
            });
        }
        query.locks = inner
            .locks
            .into_iter()
            .chain(query.locks.drain(..))
            .collect();
        query.body = inner.body;
    }
    forms::without_nothing(&mut query.body);
    let skips = |l: &ast::LockClause| l.nonblock == Some(ast::NonBlock::SkipLocked);
    match query.fetch.is_some() && query.locks.iter().any(skips) {
        true => Err(Error::new(
            "42601",
            "SKIP LOCKED and WITH TIES options cannot be used together",
        )),
        false => Ok(()),
    }
}

/// What is there of the two; `None`: both are.
fn one_of<T>(a: Option<T>, b: Option<T>) -> Option<Option<T>> {
    match (a, b) {
        (Some(_), Some(_)) => None,
        (a, b) => Some(a.or(b)),
    }
}

type Limits = (Option<ast::Expr>, Option<ast::Offset>);

fn limits(clause: Option<ast::LimitClause>) -> Result<Limits> {
    match clause {
        None => Ok((None, None)),
        Some(ast::LimitClause::LimitOffset {
            limit,
            offset,
            limit_by,
        }) if limit_by.is_empty() => Ok((limit, offset)),
        Some(other) => Err(Error::unsupported(format!("{other}"))),
    }
}

/// `FETCH FIRST n ROWS ONLY` is another form of `LIMIT n`.
fn fetched(query: &mut ast::Query) -> Result<()> {
    let several = || Error::new("42601", "multiple LIMIT clauses not allowed");
    if let Some(ast::LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause
        && let Some(count) = limit.as_ref().and_then(forms::count_with_ties)
    {
        if query.fetch.is_some() {
            return Err(several());
        }
        *limit = None;
        let offset = offset.take();
        query.fetch = Some(ast::Fetch {
            with_ties: true,
            percent: false,
            quantity: Some(count),
        });
        query.limit_clause = offset.map(|offset| ast::LimitClause::LimitOffset {
            limit: None,
            offset: Some(offset),
            limit_by: Vec::new(),
        });
        return Ok(());
    }
    let Some(fetch) = query.fetch.take() else {
        return Ok(());
    };
    if fetch.percent {
        return Err(Error::new("42601", "syntax error at or near \"percent\""));
    }
    if fetch.with_ties {
        query.fetch = Some(fetch);
        return Ok(());
    }
    let one = || ast::Expr::Value(ast::Value::Number("1".to_string(), false).into());
    let count = fetch.quantity.unwrap_or_else(one);
    match &mut query.limit_clause {
        None => {
            query.limit_clause = Some(ast::LimitClause::LimitOffset {
                limit: Some(count),
                offset: None,
                limit_by: Vec::new(),
            });
        }
        Some(ast::LimitClause::LimitOffset {
            limit: limit @ None,
            ..
        }) => *limit = Some(count),
        Some(_) => return Err(several()),
    }
    Ok(())
}
