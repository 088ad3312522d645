//! The functions behind operators, casts and comparisons of B-trees, such as `int4pl`: `pg_proc`
//! lists them, and those of operators can be called.

use std::sync::LazyLock;

use super::super::procedures::Procedure;
use super::{casts, classes, operators};

/// The functions, by number, each once.
pub static ALL: LazyLock<Vec<Procedure>> = LazyLock::new(|| {
    let of_operators = operators::all().map(|o| Procedure {
        oid: o.function,
        name: o.function_name,
        result: o.result,
        arguments: [o.left, o.right].into_iter().filter(|t| *t != 0).collect(),
        volatility: o.volatility,
        strict: o.strict,
        ..Procedure::plain()
    });
    let of_casts = casts::all().filter(|c| c.function != 0);
    let of_casts = of_casts.map(|c| Procedure {
        oid: c.function,
        name: c.function_name,
        result: c.to,
        arguments: c.arguments.clone(),
        volatility: c.volatility,
        strict: c.strict,
        ..Procedure::plain()
    });
    const INTEGER: u32 = 23;
    let of_classes = classes::comparisons().map(|c| Procedure {
        oid: c.function,
        name: c.function_name,
        result: INTEGER,
        arguments: c.arguments.clone(),
        volatility: c.volatility,
        strict: true,
        ..Procedure::plain()
    });
    let mut all: Vec<_> = of_operators.chain(of_casts).chain(of_classes).collect();
    all.sort_by_key(|p| p.oid);
    all.dedup_by_key(|p| p.oid);
    all
});
