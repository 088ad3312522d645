//! Window functions and WINDOW.

use sqlparser::ast::{
    self, FunctionArguments, NamedWindowExpr, WindowFrameBound, WindowFrameUnits, WindowSpec,
    WindowType,
};

use super::expression::Clause;
use super::group::{collation_of_keys, of_keys};
use super::tree::Windows;
use crate::bind::check_comparable;
use crate::bind::{Typed, names};
use crate::collate;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
use crate::parse::exclude;
use crate::plan::SortKey;
use crate::query::aggregate;
use crate::query::window::{self, Bound, Exclude, Units, WindowCall, WindowFrame, WindowFunction};
use crate::types::SqlType;

/// What a window specification comes to.
struct Bounds {
    partition: Vec<Expr>,
    order: Vec<SortKey>,
    /// The type of the only key of the order.
    order_type: Option<SqlType>,
    frame: WindowFrame,
}

impl Clause<'_> {
    pub(super) fn window_call(&self, name: &str, f: &ast::Function) -> Result<Typed> {
        let Some(groups) = self.groups else {
            return Err(Error::new(
                "42P20",
                format!("window functions are not allowed in {}", self.name),
            ));
        };
        if groups.in_aggregate.get() {
            return Err(Error::new(
                "42803",
                "aggregate function calls cannot contain window function calls",
            ));
        }
        if groups.in_window.get() {
            return Err(Error::new(
                "42P20",
                "window function calls cannot be nested",
            ));
        }
        if self.name == "HAVING" {
            return Err(Error::new(
                "42P20",
                "window functions are not allowed in HAVING",
            ));
        }
        groups.in_window.set(true);
        let made = self.window_parts(name, f);
        groups.in_window.set(false);
        let (mut call, result, bounds) = made?;
        call.into = self.scope.file.register();
        let by = match &call.function {
            WindowFunction::Aggregate(function) => collation_of_keys(function, &call.args),
            _ => None,
        };
        let value = Typed::new(of_keys(Expr::Column(call.into), by), result);
        let mut windows = groups.windows.borrow_mut();
        let same = windows
            .iter_mut()
            .find(|w| w.partition == bounds.partition && w.order == bounds.order);
        match same {
            Some(window) => window.calls.push(call),
            None => windows.push(Windows {
                partition: bounds.partition,
                order: bounds.order,
                calls: vec![call],
            }),
        }
        Ok(value)
    }

    fn window_parts(&self, name: &str, f: &ast::Function) -> Result<(WindowCall, SqlType, Bounds)> {
        let bounds = collate::apart(|| match &f.over {
            Some(WindowType::WindowSpec(spec)) => self.bounds(&self.resolved(spec)?),
            Some(WindowType::NamedWindow(name)) => self.bounds(&self.named(name)?),
            None => Err(Error::internal("a window function without its window")),
        })?;
        if aggregate::is_aggregate(name) {
            let (call, result) = self.aggregate_parts(name, f)?;
            if call.distinct {
                return Err(Error::new(
                    "0A000",
                    "DISTINCT is not implemented for window functions",
                ));
            }
            if !call.order.is_empty() {
                return Err(Error::new(
                    "0A000",
                    "aggregate ORDER BY is not implemented for window functions",
                ));
            }
            let call = WindowCall {
                function: WindowFunction::Aggregate(call.function),
                args: call.args,
                filter: call.filter,
                frame: bounds.frame.clone(),
                into: 0,
            };
            return Ok((call, result, bounds));
        }
        let FunctionArguments::List(list) = &f.args else {
            return Err(Error::unsupported(format!("{f}")));
        };
        if f.null_treatment.is_some()
            || !list.clauses.is_empty()
            || list.duplicate_treatment.is_some()
        {
            return Err(Error::unsupported(format!("{f}")));
        }
        let binder = self.binder();
        let args = self
            .plain_args(&list.args)?
            .into_iter()
            .map(|e| binder.expr(e))
            .collect::<Result<Vec<_>>>()?;
        let types: Vec<SqlType> = args.iter().map(|a| a.ty).collect();
        let Some(found) = window::find(name, &types) else {
            let mut plain = f.clone();
            plain.over = None;
            if binder.expr(&ast::Expr::Function(plain)).is_ok() {
                let message = format!(
                    "OVER specified, but {name} is not a window function nor an aggregate function"
                );
                return Err(Error::new("42809", message));
            }
            let types: Vec<&str> = types.iter().map(|t| t.name()).collect();
            return Err(Error::new(
                "42883",
                format!("function {name}({}) does not exist", types.join(", ")),
            )
            .hint("No function matches the given name and argument types. You might need to add explicit type casts."));
        };
        if f.filter.is_some() {
            return Err(Error::new(
                "0A000",
                "FILTER is not implemented for non-aggregate window functions",
            ));
        }
        let args = args
            .into_iter()
            .zip(&found.args)
            .map(|(a, ty)| Ok(binder.coerce(a, *ty, -1, CastContext::Implicit)?.expr))
            .collect::<Result<Vec<_>>>()?;
        let call = WindowCall {
            function: found.function,
            args,
            filter: None,
            frame: bounds.frame.clone(),
            into: 0,
        };
        Ok((call, found.result, bounds))
    }

    fn named(&self, name: &ast::Ident) -> Result<WindowSpec> {
        let name = names::ident(name);
        let groups = self.groups;
        let found = groups.and_then(|g| {
            let named = g.named.borrow();
            named
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, s)| s.clone())
        });
        found.ok_or_else(|| Error::new("42704", format!("window \"{name}\" does not exist")))
    }

    /// A specification with what it takes from a named window.
    fn resolved(&self, spec: &WindowSpec) -> Result<WindowSpec> {
        let Some(name) = &spec.window_name else {
            return Ok(spec.clone());
        };
        let base = self.named(name)?;
        let error = |what: &str| {
            Err(Error::new(
                "42P20",
                format!("cannot {what} window \"{}\"", names::ident(name)),
            ))
        };
        let (excluded, partition) = exclude::excluded(&spec.partition_by);
        if !partition.is_empty() {
            return error("override PARTITION BY clause of");
        }
        if !spec.order_by.is_empty() && !base.order_by.is_empty() {
            return error("override ORDER BY clause of");
        }
        if base.window_frame.is_some() {
            return error("copy");
        }
        let marker = spec
            .partition_by
            .iter()
            .take(usize::from(excluded.is_some()));
        Ok(WindowSpec {
            window_name: None,
            partition_by: marker.cloned().chain(base.partition_by).collect(),
            order_by: match spec.order_by.is_empty() {
                true => base.order_by,
                false => spec.order_by.clone(),
            },
            window_frame: spec.window_frame.clone(),
        })
    }

    fn bounds(&self, spec: &WindowSpec) -> Result<Bounds> {
        let binder = self.binder();
        let (excluded, partition) = exclude::excluded(&spec.partition_by);
        let exclude = match excluded {
            None | Some("no others") => Exclude::Nothing,
            Some("current row") => Exclude::CurrentRow,
            Some("group") => Exclude::Group,
            Some("ties") => Exclude::Ties,
            Some(other) => return Err(Error::internal(format!("EXCLUDE {other}"))),
        };
        let partition = partition
            .iter()
            .map(|e| {
                let key = binder.settle(binder.expr(e)?)?;
                check_comparable(key.ty, "equality")?;
                Ok(key.expr)
            })
            .collect::<Result<Vec<_>>>()?;
        let order = spec
            .order_by
            .iter()
            .map(|item| self.sort_key(item))
            .collect::<Result<Vec<_>>>()?;
        let order_type = match spec.order_by.as_slice() {
            [only] => Some(binder.settle(binder.expr(&only.expr)?)?.ty),
            _ => None,
        };
        let mut bounds = Bounds {
            partition,
            order,
            order_type,
            frame: WindowFrame {
                units: Units::Range,
                start: Bound::UnboundedPreceding,
                end: Bound::CurrentRow,
                exclude: Exclude::Nothing,
            },
        };
        if let Some(frame) = &spec.window_frame {
            bounds.frame = WindowFrame {
                exclude,
                ..self.frame(frame, &bounds)?
            };
        }
        Ok(bounds)
    }

    fn frame(&self, frame: &ast::WindowFrame, bounds: &Bounds) -> Result<WindowFrame> {
        let units = match frame.units {
            WindowFrameUnits::Rows => Units::Rows,
            WindowFrameUnits::Range => Units::Range,
            WindowFrameUnits::Groups => Units::Groups,
        };
        if units == Units::Groups && bounds.order.is_empty() {
            return Err(Error::new(
                "42P20",
                "GROUPS mode requires an ORDER BY clause",
            ));
        }
        let start = self.frame_bound(&frame.start_bound, units, bounds)?;
        let end = match &frame.end_bound {
            Some(end) => self.frame_bound(end, units, bounds)?,
            None => Bound::CurrentRow,
        };
        let wrong = |what: &str| Err(Error::new("42P20", what));
        match (&start, &end) {
            (Bound::UnboundedFollowing, _) => {
                return wrong("frame start cannot be UNBOUNDED FOLLOWING");
            }
            (_, Bound::UnboundedPreceding) => {
                return wrong("frame end cannot be UNBOUNDED PRECEDING");
            }
            (Bound::CurrentRow, Bound::Preceding(_)) => {
                return wrong("frame starting from current row cannot have preceding rows");
            }
            (Bound::Following(_), Bound::Preceding(_) | Bound::CurrentRow) => {
                return wrong("frame starting from following row cannot have preceding rows");
            }
            _ => {}
        }
        Ok(WindowFrame {
            units,
            start,
            end,
            exclude: Exclude::Nothing,
        })
    }

    fn frame_bound(
        &self,
        bound: &WindowFrameBound,
        units: Units,
        bounds: &Bounds,
    ) -> Result<Bound> {
        Ok(match bound {
            WindowFrameBound::CurrentRow => Bound::CurrentRow,
            WindowFrameBound::Preceding(None) => Bound::UnboundedPreceding,
            WindowFrameBound::Following(None) => Bound::UnboundedFollowing,
            WindowFrameBound::Preceding(Some(e)) => {
                Bound::Preceding(self.distance(e, units, bounds)?)
            }
            WindowFrameBound::Following(Some(e)) => {
                Bound::Following(self.distance(e, units, bounds)?)
            }
        })
    }

    fn distance(&self, e: &ast::Expr, units: Units, bounds: &Bounds) -> Result<Expr> {
        let binder = self.binder();
        // The parser reads `'5' preceding` as an interval without its keyword.
        let e = match e {
            ast::Expr::Interval(i) if i.leading_field.is_none() => &i.value,
            e => e,
        };
        let value = binder.expr(e)?;
        let mut columns = false;
        value
            .expr
            .visit(&mut |e| columns |= matches!(e, Expr::Column(_)));
        if columns {
            let what = match units {
                Units::Rows => "ROWS",
                Units::Range => "RANGE",
                Units::Groups => "GROUPS",
            };
            return Err(Error::new(
                "42P10",
                format!("argument of {what} must not contain variables"),
            ));
        }
        if units != Units::Range {
            return Ok(binder
                .coerce(value, SqlType::Int8, -1, CastContext::Implicit)?
                .expr);
        }
        let Some(column_type) = bounds.order_type else {
            return Err(Error::new(
                "42P20",
                "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column",
            ));
        };
        let ty = match (column_type, value.ty) {
            (SqlType::Int2 | SqlType::Int4 | SqlType::Int8, t) if t.is_integer() => t,
            (t @ (SqlType::Int2 | SqlType::Int4 | SqlType::Int8), _) => t,
            (SqlType::Float4 | SqlType::Float8, _) => SqlType::Float8,
            (SqlType::Numeric, _) => SqlType::Numeric,
            (t, _) if t.is_moved_by_intervals() => SqlType::Interval,
            (t, _) => {
                return Err(Error::new(
                    "0A000",
                    format!(
                        "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {}",
                        t.name()
                    ),
                ));
            }
        };
        let offset_type = value.ty;
        let coerced = binder.coerce(value, ty, -1, CastContext::Implicit);
        Ok(coerced
            .map_err(|error| match error.sqlstate() {
                "42804" | "42846" => Error::new(
                    "0A000",
                    format!(
                        "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {} \
                         and offset type {}",
                        column_type.name(),
                        offset_type.name()
                    ),
                )
                .hint("Cast the offset value to an appropriate type."),
                _ => error,
            })?
            .expr)
    }

    /// Takes in the WINDOW clause.
    pub(super) fn define_windows(&self, list: &[ast::NamedWindowDefinition]) -> Result<()> {
        let Some(groups) = self.groups else {
            return Ok(());
        };
        for ast::NamedWindowDefinition(name, definition) in list {
            let name = names::ident(name);
            let spec = match definition {
                NamedWindowExpr::WindowSpec(spec) => self.resolved(spec)?,
                NamedWindowExpr::NamedWindow(other) => self.named(other)?,
            };
            if groups.named.borrow().iter().any(|(n, _)| *n == name) {
                return Err(Error::new(
                    "42P20",
                    format!("window \"{name}\" is already defined"),
                ));
            }
            groups.named.borrow_mut().push((name, spec));
        }
        Ok(())
    }
}
