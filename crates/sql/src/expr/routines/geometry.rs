//! Functions and operators of points and boxes. Coordinates that differ by less than
//! [`EPSILON`] are the same, where PostgreSQL says so.

use block::value::{Datum, DatumRef};

use super::{Function, Operator, binary, function};
use crate::error::{Error, Result};
use crate::pgtype::geometry::{Area, Point};
use crate::types::SqlType;

use SqlType::{Bool, Float8, Point as PointType, Rectangle};

const EPSILON: f64 = 1e-6;

fn same(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= EPSILON
}

fn at_most(a: f64, b: f64) -> bool {
    a <= b + EPSILON
}

fn less(a: f64, b: f64) -> bool {
    a + EPSILON < b
}

pub const OPERATORS: &[Operator] = &[
    binary("+", PointType, PointType, PointType, "point_add", |v, _| {
        let (a, b) = (point(v, 0)?, point(v, 1)?);
        made((a.x + b.x, [a.x, b.x]), (a.y + b.y, [a.y, b.y]))
    }),
    binary("-", PointType, PointType, PointType, "point_sub", |v, _| {
        let (a, b) = (point(v, 0)?, point(v, 1)?);
        made((a.x - b.x, [a.x, b.x]), (a.y - b.y, [a.y, b.y]))
    }),
    binary(
        "<->",
        PointType,
        PointType,
        Float8,
        "point_distance",
        |v, _| {
            let (a, b) = (point(v, 0)?, point(v, 1)?);
            let distance = (a.x - b.x).hypot(a.y - b.y);
            Ok(Datum::Float8(finite(distance, &[a.x, a.y, b.x, b.y])?))
        },
    ),
    binary("<<", PointType, PointType, Bool, "point_left", |v, _| {
        Ok(Datum::Bool(less(point(v, 0)?.x, point(v, 1)?.x)))
    }),
    binary(">>", PointType, PointType, Bool, "point_right", |v, _| {
        Ok(Datum::Bool(less(point(v, 1)?.x, point(v, 0)?.x)))
    }),
    binary("<<", Rectangle, Rectangle, Bool, "box_left", |v, _| {
        Ok(Datum::Bool(less(area(v, 0)?.high.x, area(v, 1)?.low.x)))
    }),
    binary(">>", Rectangle, Rectangle, Bool, "box_right", |v, _| {
        Ok(Datum::Bool(less(area(v, 1)?.high.x, area(v, 0)?.low.x)))
    }),
    binary("&&", Rectangle, Rectangle, Bool, "box_overlap", |v, _| {
        let (a, b) = (area(v, 0)?, area(v, 1)?);
        Ok(Datum::Bool(
            at_most(a.low.x, b.high.x)
                && at_most(b.low.x, a.high.x)
                && at_most(a.low.y, b.high.y)
                && at_most(b.low.y, a.high.y),
        ))
    }),
    binary("@>", Rectangle, Rectangle, Bool, "box_contain", |v, _| {
        Ok(Datum::Bool(contains(area(v, 0)?, area(v, 1)?)))
    }),
    binary("<@", Rectangle, Rectangle, Bool, "box_contained", |v, _| {
        Ok(Datum::Bool(contains(area(v, 1)?, area(v, 0)?)))
    }),
    binary(
        "@>",
        Rectangle,
        PointType,
        Bool,
        "box_contain_pt",
        |v, _| Ok(Datum::Bool(holds(area(v, 0)?, point(v, 1)?))),
    ),
    binary("<@", PointType, Rectangle, Bool, "on_pb", |v, _| {
        Ok(Datum::Bool(holds(area(v, 1)?, point(v, 0)?)))
    }),
];

pub const FUNCTIONS: &[Function] = &[
    function(
        "point",
        &[Float8, Float8],
        PointType,
        "construct_point",
        |v, _| {
            let (x, y) = (number(v, 0)?, number(v, 1)?);
            made((x, [x, x]), (y, [y, y]))
        },
    ),
    function(
        "box",
        &[PointType, PointType],
        Rectangle,
        "points_box",
        |v, _| {
            let area = Area::of(point(v, 0)?, point(v, 1)?);
            Ok(Datum::Bytea(area.to_stored()))
        },
    ),
    function(
        "point_eq",
        &[PointType, PointType],
        Bool,
        "point_eq",
        |v, _| {
            let (a, b) = (point(v, 0)?, point(v, 1)?);
            let nan = [a.x, a.y, b.x, b.y].into_iter().any(f64::is_nan);
            let exact = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan();
            Ok(Datum::Bool(match nan {
                true => exact(a.x, b.x) && exact(a.y, b.y),
                false => same(a.x, b.x) && same(a.y, b.y),
            }))
        },
    ),
    function("area", &[Rectangle], Float8, "box_area", |v, _| {
        let a = area(v, 0)?;
        let (width, height) = (a.high.x - a.low.x, a.high.y - a.low.y);
        let area = of_box(width * height, a)?;
        match area == Datum::Float8(0.0) && width != 0.0 && height != 0.0 {
            true => Err(Error::new("22003", "value out of range: underflow")),
            false => Ok(area),
        }
    }),
    function("width", &[Rectangle], Float8, "box_width", |v, _| {
        let a = area(v, 0)?;
        of_box(a.high.x - a.low.x, a)
    }),
    function("height", &[Rectangle], Float8, "box_height", |v, _| {
        let a = area(v, 0)?;
        of_box(a.high.y - a.low.y, a)
    }),
    function("center", &[Rectangle], PointType, "box_center", |v, _| {
        let a = area(v, 0)?;
        let (x, y) = (a.high.x + a.low.x, a.high.y + a.low.y);
        let halves = (x / 2.0, y / 2.0);
        made(
            (halves.0, [a.high.x, a.low.x]),
            (halves.1, [a.high.y, a.low.y]),
        )
    }),
];

fn contains(outer: Area, inner: Area) -> bool {
    at_most(inner.high.x, outer.high.x)
        && at_most(outer.low.x, inner.low.x)
        && at_most(inner.high.y, outer.high.y)
        && at_most(outer.low.y, inner.low.y)
}

fn holds(area: Area, point: Point) -> bool {
    area.high.x >= point.x
        && area.low.x <= point.x
        && area.high.y >= point.y
        && area.low.y <= point.y
}

/// A point of coordinates, each with those that it was made of.
fn made(x: (f64, [f64; 2]), y: (f64, [f64; 2])) -> Result<Datum> {
    let (x, y) = (finite(x.0, &x.1)?, finite(y.0, &y.1)?);
    Ok(Datum::Bytea(Point { x, y }.to_stored()))
}

/// A value that is too large if it is infinite and none of those it was made of is.
fn finite(value: f64, of: &[f64]) -> Result<f64> {
    match value.is_infinite() && of.iter().all(|v| v.is_finite()) {
        true => Err(Error::new("22003", "value out of range: overflow")),
        false => Ok(value),
    }
}

/// A length or an area.
fn of_box(value: f64, of: Area) -> Result<Datum> {
    let known = [of.high.x, of.high.y, of.low.x, of.low.y];
    Ok(Datum::Float8(finite(value, &known)?))
}

fn bytes<'a>(values: &[DatumRef<'a>], at: usize) -> Result<&'a [u8]> {
    match values.get(at) {
        Some(DatumRef::Bytea(stored)) => Ok(stored),
        other => Err(Error::internal(format!("{other:?} as a geometric value"))),
    }
}

fn point(values: &[DatumRef<'_>], at: usize) -> Result<Point> {
    let stored = Point::stored(bytes(values, at)?);
    stored.ok_or_else(|| Error::internal("a point without its coordinates"))
}

fn area(values: &[DatumRef<'_>], at: usize) -> Result<Area> {
    let stored = Area::stored(bytes(values, at)?);
    stored.ok_or_else(|| Error::internal("a box without its corners"))
}

fn number(values: &[DatumRef<'_>], at: usize) -> Result<f64> {
    match values.get(at) {
        Some(DatumRef::Float8(n)) => Ok(*n),
        other => Err(Error::internal(format!("{other:?} as a coordinate"))),
    }
}
