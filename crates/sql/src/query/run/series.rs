//! `generate_series` of numbers.

use std::sync::Arc;

use block::value::{Datum, DatumRef};

use super::{Frame, Operator};
use crate::error::{Error, Result};
use crate::expr::{ArithOp, cast, compare, number};
use crate::query::plan::Series;
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
    /// One of the arguments is NULL.
    Nothing,
}

impl Counter {
    pub fn start(plan: &Series, core: &mut Core, frame: &Frame) -> Result<Counter> {
        let start = frame.eval(&plan.start, core)?;
        let stop = frame.eval(&plan.stop, core)?;
        let step = match &plan.step {
            Some(e) => frame.eval(e, core)?,
            None if plan.ty == SqlType::Numeric => Datum::Numeric(number::from_i64(1)),
            None => Datum::Int8(1),
        };
        if start.is_null() || stop.is_null() || step.is_null() {
            return Ok(Counter::Nothing);
        }
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

    pub fn next(&mut self) -> Result<Option<Datum>> {
        match self {
            Counter::Nothing => Ok(None),
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
                if n & 0xfff == 0 {
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

    fn next(&mut self, _: &mut Core, frame: &mut Frame) -> Result<bool> {
        let Some(value) = self.counter.next()? else {
            return Ok(false);
        };
        self.number += 1;
        frame.set(self.plan.into, value);
        if let Some(register) = self.plan.ordinality {
            frame.set(register, Datum::Int8(self.number));
        }
        Ok(true)
    }
}
