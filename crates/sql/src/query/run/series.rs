//! Functions that give several rows: `generate_series` of numbers and timestamps, `unnest`.

use std::sync::Arc;

use block::array::{Array, Dimension};
use block::interval::Interval;
use block::value::{ColType, Datum, DatumRef};

use super::{Frame, Operator};
use crate::error::{Error, Result};
use crate::exec::drive::is_to_look_up;
use crate::exec::sort::Rows;
use crate::expr::{ArithOp, cast, compare, moments, number};
use crate::query::plan::{Series, SeriesOf, UserSeries};
use crate::session::Core;
use crate::types::SqlType;

/// Values of a series, one by one.
pub enum Counter {
    Integer {
        next: Option<i64>,
        stop: i64,
        step: i64,
        ty: SqlType,
    },
    Numeric {
        next: Option<block::numeric::Numeric>,
        stop: block::numeric::Numeric,
        step: block::numeric::Numeric,
        rises: bool,
    },
    Times {
        next: Option<Datum>,
        stop: Datum,
        step: Interval,
        rises: bool,
    },
    /// What is left of an array, the next one last.
    Elements(Vec<Datum>),
    /// The same of two columns.
    Pairs(Vec<(Datum, Datum)>),
    /// The same of several columns, of which some end before others.
    Columns(Vec<Vec<Datum>>),
    /// The rows that a function of users has given.
    Rows(Rows),
    /// One of the arguments is NULL.
    Nothing,
}

impl Counter {
    pub fn start(plan: &Series, core: &mut Core, frame: &Frame) -> Result<Counter> {
        let args = plan.args.iter().map(|e| frame.eval(e, core));
        let args = args.collect::<Result<Vec<Datum>>>()?;
        if plan.of == SeriesOf::List {
            return Ok(Counter::Elements(args.into_iter().rev().collect()));
        }
        if let SeriesOf::User(user) = plan.of {
            return user_rows(plan, user, args, core);
        }
        if plan.of == SeriesOf::Zip {
            let left = |array: Datum| match array {
                Datum::Array(array) => {
                    let values: Vec<Datum> =
                        array.borrow().values().map(|v| v.to_datum()).collect();
                    values.into_iter().rev().collect()
                }
                _ => Vec::new(),
            };
            return Ok(Counter::Columns(args.into_iter().map(left).collect()));
        }
        if args.iter().any(Datum::is_null) {
            return Ok(Counter::Nothing);
        }
        let mut args = args.into_iter();
        let mut arg = || args.next();
        let missing = || Error::internal("a series without its bounds");
        let start = arg().ok_or_else(missing)?;
        match plan.of {
            SeriesOf::Elements => return elements(&start, plan.ty, core),
            SeriesOf::Rows => return rows(&start),
            SeriesOf::Expanded => return expanded(&start),
            SeriesOf::Options => return options(&start),
            SeriesOf::AclItems => return acl_items(&start, core),
            SeriesOf::Subscripts => return Ok(subscripts(&start, arg(), arg())),
            SeriesOf::Json(of) => return super::json_series::start(of, &start),
            _ => {}
        }
        let stop = arg().ok_or_else(missing)?;
        if plan.of == SeriesOf::Times {
            let Some(Datum::Interval(step)) = arg() else {
                return Err(missing());
            };
            return times(start, stop, step);
        }
        let step = match arg() {
            Some(step) => step,
            None if plan.ty == SqlType::Numeric => Datum::Numeric(number::from_i64(1)),
            None => Datum::Int8(1),
        };
        let no_step = || Error::new("22023", "step size cannot equal zero");
        if let (Datum::Numeric(start), Datum::Numeric(stop), Datum::Numeric(step)) =
            (&start, &stop, &step)
        {
            for (value, what) in [(start, "start"), (stop, "stop"), (step, "step size")] {
                if let Some(message) = not_a_number(value, what) {
                    return Err(Error::new("22023", message));
                }
            }
            let zero = number::from_i64(0);
            let order = compare(
                DatumRef::Numeric(step.borrow()),
                DatumRef::Numeric(zero.borrow()),
            )?;
            if order.is_eq() {
                return Err(no_step());
            }
            return Ok(Counter::Numeric {
                next: Some(start.clone()),
                stop: stop.clone(),
                step: step.clone(),
                rises: order.is_gt(),
            });
        }
        let integer = |d: &Datum| {
            cast::integer(d.borrow()).ok_or_else(|| Error::internal("a series of no numbers"))
        };
        match integer(&step)? {
            0 => Err(no_step()),
            step => Ok(Counter::Integer {
                next: Some(integer(&start)?),
                stop: integer(&stop)?,
                step,
                ty: plan.ty,
            }),
        }
    }

    /// The next row: the value of its first column, and those of the others.
    pub fn next_row(&mut self, core: &Core) -> Result<Option<(Datum, Vec<Datum>)>> {
        match self {
            Counter::Pairs(left) => Ok(left.pop().map(|(key, value)| (key, vec![value]))),
            Counter::Rows(rows) => Ok(rows.next_row()?.map(|row| {
                let mut row = row.into_iter();
                let first = row.next().unwrap_or(Datum::Null);
                (first, row.collect())
            })),
            Counter::Columns(columns) if columns.iter().all(Vec::is_empty) => Ok(None),
            Counter::Columns(columns) => {
                let mut row = columns
                    .iter_mut()
                    .map(|left| left.pop().unwrap_or(Datum::Null));
                let first = row.next().unwrap_or(Datum::Null);
                Ok(Some((first, row.collect())))
            }
            _ => Ok(self.next(core)?.map(|value| (value, Vec::new()))),
        }
    }

    pub fn next(&mut self, core: &Core) -> Result<Option<Datum>> {
        match self {
            Counter::Nothing => Ok(None),
            Counter::Rows(rows) => {
                let row = rows.next_row()?;
                Ok(row.and_then(|row| row.into_iter().next()))
            }
            Counter::Elements(left) => Ok(left.pop()),
            Counter::Pairs(_) | Counter::Columns(_) => {
                Err(Error::internal("a series of several columns as a value"))
            }
            Counter::Times {
                next,
                stop,
                step,
                rises,
            } => {
                let Some(value) = next.take() else {
                    return Ok(None);
                };
                let order = compare(value.borrow(), stop.borrow())?;
                if if *rises { order.is_gt() } else { order.is_lt() } {
                    return Ok(None);
                }
                wait::check_cancel().map_err(|_| crate::session::cancelled())?;
                *next = Some(moments::move_by(value.borrow(), *step, &core.io)?.into_datum());
                Ok(Some(value))
            }
            Counter::Integer {
                next,
                stop,
                step,
                ty,
            } => {
                let Some(n) = *next else { return Ok(None) };
                if if *step > 0 { n > *stop } else { n < *stop } {
                    *next = None;
                    return Ok(None);
                }
                *next = n.checked_add(*step);
                if is_to_look_up(n, *step) {
                    wait::check_cancel().map_err(|_| crate::session::cancelled())?;
                }
                Ok(Some(match ty {
                    SqlType::Int4 => Datum::Int4(n as i32),
                    _ => Datum::Int8(n),
                }))
            }
            Counter::Numeric {
                next,
                stop,
                step,
                rises,
            } => {
                let Some(value) = next.take() else {
                    return Ok(None);
                };
                let order = compare(
                    DatumRef::Numeric(value.borrow()),
                    DatumRef::Numeric(stop.borrow()),
                )?;
                if if *rises { order.is_gt() } else { order.is_lt() } {
                    return Ok(None);
                }
                wait::check_cancel().map_err(|_| crate::session::cancelled())?;
                *next = Some(number::apply(ArithOp::Add, value.borrow(), step.borrow())?);
                Ok(Some(Datum::Numeric(value)))
            }
        }
    }
}

/// Runs a function of users to its end; its rows are kept within `work_mem`, and beyond that in a
/// temporary file.
fn user_rows(
    plan: &Series,
    user: UserSeries,
    args: Vec<Datum>,
    core: &mut Core,
) -> Result<Counter> {
    if user.strict && args.iter().any(Datum::is_null) {
        return Ok(match user.set {
            true => Counter::Nothing,
            false => Counter::Rows(vec![vec![Datum::Null; plan.columns.len()]].into()),
        });
    }
    let rows = crate::pl::rows(core, (user.oid, user.types), args, &plan.columns)?;
    Ok(Counter::Rows(rows))
}

/// A series of timestamps. Whether it rises is decided by the step, its months as 30 days.
fn times(start: Datum, stop: Datum, step: Interval) -> Result<Counter> {
    let total = step.span();
    if total == 0 {
        return Err(Error::new("22023", "step size cannot equal zero"));
    }
    Ok(Counter::Times {
        next: Some(start),
        stop,
        step,
        rises: total > 0,
    })
}

fn no_array() -> Error {
    Error::internal("parts of what is no array")
}

/// Of an array of two dimensions each row, as an array.
fn rows(array: &Datum) -> Result<Counter> {
    let Datum::Array(array) = array else {
        return Err(no_array());
    };
    let array = array.borrow();
    let width = array.dimensions().nth(1).map_or(0, |d| d.length);
    let values: Vec<Datum> = array.values().map(|v| v.to_datum()).collect();
    let dimension = Dimension {
        length: width,
        lower: 1,
    };
    let row = |values: &[Datum]| Datum::Array(Array::new(array.element(), &[dimension], values));
    let rows = values.chunks(usize::try_from(width).unwrap_or(0).max(1));
    Ok(Counter::Elements(rows.rev().map(row).collect()))
}

/// Of an array of options, `name=value` or a name alone, names and values.
fn options(array: &Datum) -> Result<Counter> {
    let Datum::Array(array) = array else {
        return Err(no_array());
    };
    let parts = |value: DatumRef<'_>| match value {
        DatumRef::Text(option) => Ok(match option.split_once('=') {
            Some((name, value)) => (Datum::Text(name.into()), Datum::Text(value.into())),
            None => (Datum::Text(option.into()), Datum::Null),
        }),
        _ => Err(Error::new("22004", "array must not contain nulls")),
    };
    let pairs = array.borrow().values().map(parts);
    let mut pairs = pairs.collect::<Result<Vec<_>>>()?;
    pairs.reverse();
    Ok(Counter::Pairs(pairs))
}

/// The privileges of items, each in columns of its own.
fn acl_items(array: &Datum, core: &Core) -> Result<Counter> {
    let Datum::Array(array) = array else {
        return Err(no_array());
    };
    let dict = core.dict();
    let mut columns = vec![Vec::new(); 4];
    for value in array.borrow().values() {
        let DatumRef::Text(text) = value else {
            let message = "ACL arrays must not contain null values";
            return Err(Error::new("22004", message));
        };
        let item = crate::views::acl::read(&dict, text)?;
        for (privilege, _, name) in item.privileges.each() {
            let grantable = item.grantable.has(privilege);
            let values = [
                Datum::Int8(item.grantor.into()),
                Datum::Int8(item.grantee.into()),
                Datum::Text(name.to_string()),
                Datum::Bool(grantable),
            ];
            for (column, value) in columns.iter_mut().zip(values) {
                column.push(value);
            }
        }
    }
    columns.iter_mut().for_each(|column| column.reverse());
    Ok(Counter::Columns(columns))
}

/// The elements of an array with their places, from 1.
fn expanded(array: &Datum) -> Result<Counter> {
    let Datum::Array(array) = array else {
        return Err(no_array());
    };
    let dimension = Dimension {
        length: 2,
        lower: 1,
    };
    let row = |(at, value): (usize, DatumRef<'_>)| {
        let value = cast::integer(value).and_then(|v| i32::try_from(v).ok());
        let fields = [
            value.map_or(Datum::Null, Datum::Int4),
            Datum::Int4(at as i32 + 1),
        ];
        Datum::Array(Array::new(ColType::Int4, &[dimension], &fields))
    };
    let rows: Vec<Datum> = array.borrow().values().enumerate().map(row).collect();
    Ok(Counter::Elements(rows.into_iter().rev().collect()))
}

/// The subscripts of a dimension of an array, maybe backwards.
fn subscripts(array: &Datum, dimension: Option<Datum>, backwards: Option<Datum>) -> Counter {
    let (Datum::Array(array), Some(Datum::Int4(dimension))) = (array, dimension) else {
        return Counter::Nothing;
    };
    let at = usize::try_from(dimension)
        .ok()
        .and_then(|d| d.checked_sub(1));
    let bounds = at.and_then(|at| array.borrow().dimensions().nth(at));
    let Some(bounds) = bounds else {
        return Counter::Nothing;
    };
    let (first, last) = (bounds.lower, bounds.lower + (bounds.length - 1));
    let (start, stop, step) = match backwards {
        Some(Datum::Bool(true)) => (last, first, -1),
        _ => (first, last, 1),
    };
    Counter::Integer {
        next: Some(start.into()),
        stop: stop.into(),
        step,
        ty: SqlType::Int4,
    }
}

fn elements(array: &Datum, ty: SqlType, core: &Core) -> Result<Counter> {
    if let Datum::Array(array) = array {
        let mut values: Vec<Datum> = array.borrow().values().map(|v| v.to_datum()).collect();
        values.reverse();
        return Ok(Counter::Elements(values));
    }
    let Datum::Text(text) = array else {
        return Err(no_array());
    };
    let elements = crate::parse::arrays::read(text)?.into_iter().rev();
    let elements = elements.map(|element| match element {
        Some(element) => crate::pgtype::text_in(ty, &element, &core.io),
        None => Ok(Datum::Null),
    });
    Ok(Counter::Elements(elements.collect::<Result<_>>()?))
}

/// Why a series cannot have the value, in PostgreSQL's words.
fn not_a_number(value: &block::numeric::Numeric, what: &str) -> Option<String> {
    if value.borrow().to_bigdecimal().is_some() {
        return None;
    }
    let kind = match value.borrow().to_string().as_str() {
        "NaN" => "NaN",
        _ => "infinity",
    };
    Some(match what {
        "start" => format!("start value cannot be {kind}"),
        "stop" => format!("stop value cannot be {kind}"),
        _ => format!("step size cannot be {kind}"),
    })
}

/// A series in FROM.
pub struct SeriesScan {
    plan: Arc<Series>,
    counter: Counter,
    number: i64,
}

impl SeriesScan {
    pub fn new(plan: &Arc<Series>) -> SeriesScan {
        SeriesScan {
            plan: plan.clone(),
            counter: Counter::Nothing,
            number: 0,
        }
    }
}

impl Operator for SeriesScan {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        self.counter = Counter::start(&self.plan, core, frame)?;
        self.number = 0;
        Ok(())
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        let Some((value, more)) = self.counter.next_row(core)? else {
            return Ok(false);
        };
        self.number += 1;
        frame.set(self.plan.into, value);
        for (register, value) in self.plan.more.iter().zip(more) {
            frame.set(*register, value);
        }
        if let Some(register) = self.plan.ordinality {
            frame.set(register, Datum::Int8(self.number));
        }
        Ok(true)
    }
}
