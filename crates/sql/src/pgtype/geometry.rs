//! Points and boxes. A value is stored as its binary form: the coordinates as double precision, of
//! a box those of its upper right corner first.

use super::{IoSettings, float, text_out};
use crate::error::{Error, Result};
use crate::types::SqlType;
use block::value::DatumRef;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    pub x: f64,
    pub y: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Area {
    pub high: Point,
    pub low: Point,
}

impl Point {
    pub fn stored(bytes: &[u8]) -> Option<Point> {
        let (x, rest) = bytes.split_first_chunk::<8>()?;
        let (y, _) = rest.split_first_chunk::<8>()?;
        Some(Point {
            x: f64::from_be_bytes(*x),
            y: f64::from_be_bytes(*y),
        })
    }

    pub fn to_stored(self) -> Vec<u8> {
        [self.x.to_be_bytes(), self.y.to_be_bytes()].concat()
    }
}

impl Area {
    /// The box of two corners, whichever they are.
    pub fn of(a: Point, b: Point) -> Area {
        // As PostgreSQL orders them: NaN is above all numbers.
        let sorted = |a: f64, b: f64| match a < b || (b.is_nan() && !a.is_nan()) {
            true => (b, a),
            false => (a, b),
        };
        let ((high_x, low_x), (high_y, low_y)) = (sorted(a.x, b.x), sorted(a.y, b.y));
        Area {
            high: Point {
                x: high_x,
                y: high_y,
            },
            low: Point { x: low_x, y: low_y },
        }
    }

    pub fn stored(bytes: &[u8]) -> Option<Area> {
        let (high, low) = bytes.split_at_checked(16)?;
        Some(Area {
            high: Point::stored(high)?,
            low: Point::stored(low)?,
        })
    }

    pub fn to_stored(self) -> Vec<u8> {
        [self.high.to_stored(), self.low.to_stored()].concat()
    }
}

/// Reads `(1,2)` or `1,2`.
pub fn parse_point(text: &str) -> Result<Vec<u8>> {
    let mut reader = Reader::new(SqlType::Point, text);
    let point = reader.pair()?;
    reader.end()?;
    Ok(point.to_stored())
}

/// Reads `((1,2),(3,4))`, `(1,2),(3,4)`, `(1,2,3,4)` or `1,2,3,4`.
pub fn parse_box(text: &str) -> Result<Vec<u8>> {
    let mut reader = Reader::new(SqlType::Rectangle, text);
    let outer = reader.outer();
    let first = reader.pair()?;
    reader.accept(',');
    let second = reader.pair()?;
    reader.accept(',');
    if outer && !reader.accept(')') {
        return Err(reader.invalid());
    }
    reader.blanks();
    reader.end()?;
    Ok(Area::of(first, second).to_stored())
}

struct Reader<'a> {
    ty: SqlType,
    text: &'a str,
    rest: &'a str,
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

impl<'a> Reader<'a> {
    fn new(ty: SqlType, text: &'a str) -> Reader<'a> {
        Reader {
            ty,
            text,
            rest: text,
        }
    }

    fn invalid(&self) -> Error {
        let (ty, text) = (self.ty.name(), self.text);
        let message = format!("invalid input syntax for type {ty}: \"{text}\"");
        Error::new("22P02", message)
    }

    fn blanks(&mut self) {
        self.rest = self.rest.trim_start_matches(is_space);
    }

    fn accept(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes a parenthesis that is around both corners.
    fn outer(&mut self) -> bool {
        self.blanks();
        let Some(inner) = self.rest.strip_prefix('(') else {
            return false;
        };
        let inner = inner.trim_start_matches(is_space);
        let is_outer = inner.starts_with('(') || !inner.contains('(');
        if is_outer {
            self.rest = inner;
        }
        is_outer
    }

    fn pair(&mut self) -> Result<Point> {
        self.blanks();
        let inner = self.accept('(');
        let x = self.number()?;
        if !self.accept(',') {
            return Err(self.invalid());
        }
        let y = self.number()?;
        if inner {
            if !self.accept(')') {
                return Err(self.invalid());
            }
            self.blanks();
        }
        Ok(Point { x, y })
    }

    fn number(&mut self) -> Result<f64> {
        let end = self.rest.find([',', '(', ')', '[', ']']);
        let (number, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        float::parse_float8(number).map_err(|e| match e.sqlstate() {
            "22P02" => self.invalid(),
            _ => e,
        })
    }

    fn end(&self) -> Result<()> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(self.invalid()),
        }
    }
}

/// Writes the text form of a stored value: `(x,y)` for each point.
pub fn write(stored: &[u8], io: &IoSettings, out: &mut Vec<u8>) {
    for (at, point) in stored.chunks(16).filter_map(Point::stored).enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.push(b'(');
        text_out(SqlType::Float8, DatumRef::Float8(point.x), io, out);
        out.push(b',');
        text_out(SqlType::Float8, DatumRef::Float8(point.y), io, out);
        out.push(b')');
    }
}

/// Reads the binary form of a point.
pub fn point_in(bytes: [u8; 16]) -> Vec<u8> {
    bytes.to_vec()
}

/// Reads the binary form of a box, whose corners may be any two.
pub fn box_in(bytes: [u8; 32]) -> Vec<u8> {
    match Area::stored(&bytes) {
        Some(area) => Area::of(area.high, area.low).to_stored(),
        None => bytes.to_vec(),
    }
}
