//! `LISTAGG(value [, delimiter]) WITHIN GROUP (ORDER BY ..)`, which Oracle has, as `string_agg`.

use sqlparser::ast::{
    CastKind, DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, Ident, ObjectName, ObjectNamePart, Value,
};

/// Writes a call of LISTAGG as one of `string_agg`. The value becomes a text, unless equal ones
/// are left out: then it is to be the very one that the rows are in the order of.
pub fn write_out(e: &mut Expr) {
    let Expr::Function(f) = e else { return };
    let [ObjectNamePart::Identifier(name)] = f.name.0.as_slice() else {
        return;
    };
    if f.within_group.is_empty() || !name.value.eq_ignore_ascii_case("listagg") {
        return;
    }
    let FunctionArguments::List(list) = &mut f.args else {
        return;
    };
    let delimiter = || {
        let empty = Value::SingleQuotedString(String::new());
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(empty.into())))
    };
    match list.args.len() {
        1 => list.args.push(delimiter()),
        2 => {}
        _ => return,
    }
    if list.duplicate_treatment.is_none()
        && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(value))) = list.args.first_mut()
    {
        let null = Expr::Value(Value::Null.into());
        *value = Expr::Cast {
            kind: CastKind::DoubleColon,
            expr: Box::new(Expr::Nested(Box::new(std::mem::replace(value, null)))),
            data_type: DataType::Text,
            array: false,
            format: None,
        };
    }
    let order = std::mem::take(&mut f.within_group);
    list.clauses.push(FunctionArgumentClause::OrderBy(order));
    f.name = ObjectName::from(vec![Ident::new("string_agg")]);
}
