//! ANY and ALL of the elements of an array by an operator that is no comparison: patterns, regular
//! expressions, containment. Comparisons are in [`super::array`].

use sqlparser::ast::{self, BinaryOperator};

use super::numbered_operator::symbol_of;
use super::operator_call::Operands;
use super::{Binder, Typed, element_of};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
use crate::expr::quantified::{ELEMENT, LEFT, Quantified};
use crate::types::{Element, SqlType};

impl Binder<'_> {
    /// `left op ANY (array)` and ALL.
    pub(super) fn of_each(
        &self,
        left: &ast::Expr,
        op: &BinaryOperator,
        array: Typed,
        all: bool,
    ) -> Result<Typed> {
        let left = self.expr(left)?;
        if array.ty == SqlType::Unknown {
            return self.of_unknown(left, op, array, all);
        }
        let Some(element) = element_of(array.ty) else {
            return Err(Error::new(
                "42809",
                "op ANY/ALL (array) requires array on right side",
            ));
        };
        self.of_elements(left, op, array, (element, all))
    }

    /// An array that is a literal or a parameter: of what is on the left, or else of texts.
    fn of_unknown(
        &self,
        left: Typed,
        op: &BinaryOperator,
        array: Typed,
        all: bool,
    ) -> Result<Typed> {
        let own = match left.ty {
            ty if ty.is_string() => None,
            SqlType::Unknown => None,
            ty => Element::of(ty),
        };
        let text = Element::of(SqlType::Text);
        let mut first = None;
        for element in own.into_iter().chain(text) {
            if let Err(error) = self.test_of(&left, op, element, &array) {
                first.get_or_insert(error);
                continue;
            }
            let to = SqlType::Array(element);
            let array = self.coerce(array, to, -1, CastContext::Implicit)?;
            return self.of_elements(left, op, array, (element, all));
        }
        Err(first.unwrap_or_else(|| Error::internal("an array of no type")))
    }

    fn of_elements(
        &self,
        left: Typed,
        op: &BinaryOperator,
        array: Typed,
        (element, all): (Element, bool),
    ) -> Result<Typed> {
        let left = match left.ty {
            SqlType::Unknown => {
                self.coerce(left, self.beside(element), -1, CastContext::Implicit)?
            }
            _ => left,
        };
        let test = self.test_of(&left, op, element, &array)?;
        let quantified = Quantified {
            left: left.expr,
            array: array.expr,
            symbol: symbol_of(op),
            test,
            all,
        };
        let expr = Expr::Quantified(Box::new(quantified));
        Ok(Typed::new(expr, SqlType::Bool))
    }

    /// What a literal is beside an element.
    fn beside(&self, element: Element) -> SqlType {
        match element.ty() {
            ty if ty.is_string() => SqlType::Text,
            ty => ty,
        }
    }

    /// The operator between what is on the left and one element, in their places.
    fn test_of(
        &self,
        left: &Typed,
        op: &BinaryOperator,
        element: Element,
        array: &Typed,
    ) -> Result<Expr> {
        let of_left = Typed {
            expr: match left.ty {
                SqlType::Unknown => left.expr.clone(),
                _ => Expr::Column(LEFT),
            },
            ..left.clone()
        };
        let of_element = Typed {
            collation: array.collation,
            ..Typed::new(Expr::Column(ELEMENT), element.ty())
        };
        let names = &self.params.names;
        let outer = names.note_in(None);
        let is_stored = outer.is_some();
        names.note_in(is_stored.then(Vec::new));
        let found = self.operated_values(op, of_left, of_element);
        let noted = names.note_in(outer);
        let found = found?;
        if noted.is_some_and(|noted| !noted.is_empty()) {
            return Err(Error::unsupported(format!(
                "{op} of an extension with ANY or ALL in what is kept as text"
            )));
        }
        if found.ty != SqlType::Bool {
            return Err(Error::new(
                "42809",
                "op ANY/ALL (array) requires operator to yield boolean",
            ));
        }
        Ok(found.expr)
    }

    /// An operator between values that are bound.
    pub(crate) fn operated_values(
        &self,
        op: &BinaryOperator,
        left: Typed,
        right: Typed,
    ) -> Result<Typed> {
        let operands = Operands(vec![left, right]);
        let binder = Binder {
            groups: Some(&operands),
            ..Binder::new(self.scope, self.params, self.clause)
        };
        let side = |n| Box::new(crate::parse::arrays::parameter(n));
        binder.expr(&ast::Expr::BinaryOp {
            left: side(1),
            op: op.clone(),
            right: side(2),
        })
    }
}
