//! Arrays of which an element or a slice is given another value: `set a[1] = 2`; arrays filled with
//! a value, and arrays as thresholds of buckets.

use block::array::{Array, ArrayRef, Dimension, MAX_DIMENSIONS, MAX_ELEMENTS};
use block::value::{Datum, DatumRef};

use super::array::int;
use super::{Val, compare};
use crate::error::{Error, Result};
use crate::pgtype::array;
use crate::types::Element;

fn wrong(message: &str) -> Error {
    Error::new("2202E", message.to_string())
}

/// The array that is changed, with each dimension's first and last place.
struct Shape {
    dimensions: Vec<Dimension>,
    values: Vec<Datum>,
}

/// The places that are given values: of each dimension the first and the last.
type Places = Vec<(i32, i32)>;

/// Arguments: the array, the value, and the subscripts: with `slice` the bounds of each dimension,
/// of which some are left out.
pub fn call(element: Element, slice: Option<u16>, args: &[Val<'_>]) -> Result<Val<'static>> {
    let [base, value, subscripts @ ..] = args else {
        return Err(Error::internal("an assignment without a value"));
    };
    if subscripts.iter().any(Val::is_null) {
        let message = "array subscript in assignment must not be null";
        return Err(Error::new("22004", message));
    }
    if slice.is_some() && value.is_null() {
        return Ok(Val::Own(base.get().to_datum()));
    }
    let shape = match base.get() {
        DatumRef::Array(a) if a.count() > 0 => Shape {
            dimensions: a.dimensions().collect(),
            values: a.values().map(|v| v.to_datum()).collect(),
        },
        _ => Shape {
            dimensions: Vec::new(),
            values: Vec::new(),
        },
    };
    let subscripts = subscripts.iter().map(|s| int(s.get()));
    let subscripts = subscripts.collect::<Result<Vec<_>>>()?;
    let made = match (slice, value.get()) {
        (None, value) => {
            let places = subscripts.iter().map(|s| (*s, *s)).collect();
            shape.with(element, places, vec![value.to_datum()], None)?
        }
        (Some(omitted), DatumRef::Array(source)) => {
            let places = bounds(&shape.dimensions, &subscripts, omitted)?;
            let values = source.values().map(|v| v.to_datum()).collect();
            shape.with(element, places, values, Some(source))?
        }
        (Some(_), other) => return Err(Error::internal(format!("a slice of {other:?}"))),
    };
    Ok(Val::Own(Datum::Array(made)))
}

/// The bounds of a slice; those that are left out are the array's.
fn bounds(dimensions: &[Dimension], subscripts: &[i32], omitted: u16) -> Result<Places> {
    let given = subscripts.len() / 2;
    if dimensions.is_empty() && omitted != 0 {
        return Err(
            wrong("array slice subscript must provide both boundaries").detail(
                "When assigning to a slice of an empty array value, slice boundaries must be \
                 fully specified.",
            ),
        );
    }
    if !dimensions.is_empty() && dimensions.len() < given {
        return Err(wrong("wrong number of array subscripts"));
    }
    let mut places = Vec::new();
    for at in 0..dimensions.len().max(given) {
        let bound = |i: usize, own: fn(&Dimension) -> i32| {
            let is_given = i < subscripts.len() && omitted >> i & 1 == 0;
            match (is_given, dimensions.get(at)) {
                (false, Some(d)) => own(d),
                _ => subscripts[i],
            }
        };
        let first = bound(at * 2, |d| d.lower);
        let last = bound(at * 2 + 1, |d| d.lower + (d.length - 1));
        if first > last && !dimensions.is_empty() {
            return Err(wrong("upper bound cannot be less than lower bound"));
        }
        places.push((first, last));
    }
    Ok(places)
}

/// How many there are from a place to another.
fn count((first, last): (i32, i32)) -> Result<i32> {
    let count = i64::from(last) - i64::from(first) + 1;
    i32::try_from(count)
        .ok()
        .filter(|count| *count >= 0)
        .ok_or_else(array::too_large)
}

fn total(counts: impl Iterator<Item = i32>) -> Result<usize> {
    let mut total = 1_usize;
    for count in counts {
        let product = total.checked_mul(count as usize);
        total = product
            .filter(|t| *t <= MAX_ELEMENTS)
            .ok_or_else(array::too_large)?;
    }
    Ok(total)
}

impl Shape {
    /// With values in the places. An array of one dimension grows as it must, and one without
    /// elements gets the shape of the places.
    fn with(
        self,
        element: Element,
        places: Places,
        values: Vec<Datum>,
        source: Option<ArrayRef<'_>>,
    ) -> Result<Array> {
        if places.len() > MAX_DIMENSIONS {
            return Err(array::too_many_dimensions(places.len()));
        }
        let counts = places.iter().map(|p| count(*p));
        let counts = counts.collect::<Result<Vec<_>>>()?;
        let wanted = total(counts.iter().copied())?;
        if source.is_some() && values.len() < wanted {
            return Err(wrong("source array too small"));
        }
        if self.dimensions.is_empty() {
            let dimension = |(count, place): (&i32, &(i32, i32))| Dimension {
                length: *count,
                lower: place.0,
            };
            let dimensions: Vec<Dimension> = counts.iter().zip(&places).map(dimension).collect();
            let values = &values[..wanted];
            return match wanted {
                0 => array::list(element, &[]),
                _ => array::make(element, &dimensions, values),
            };
        }
        if self.dimensions.len() != places.len() {
            return Err(wrong("wrong number of array subscripts"));
        }
        let mut grown = self.grown(&places)?;
        let dimensions = &grown.dimensions;
        // The places in order, the last dimension counting first.
        let mut at: Vec<i32> = places.iter().map(|p| p.0).collect();
        for value in values.into_iter().take(wanted) {
            let place = dimensions.iter().zip(&at).fold(0, |place, (d, at)| {
                place * d.length as usize + (at - d.lower) as usize
            });
            grown.values[place] = value;
            for (at, (first, last)) in at.iter_mut().zip(&places).rev() {
                if *at < *last {
                    *at += 1;
                    break;
                }
                *at = *first;
            }
        }
        array::make(element, &grown.dimensions, &grown.values)
    }

    /// With NULLs up to the places, if it has one dimension.
    fn grown(mut self, places: &Places) -> Result<Shape> {
        let inside = |d: &Dimension, (first, last): &(i32, i32)| {
            *first >= d.lower && *last <= d.lower + (d.length - 1)
        };
        if self
            .dimensions
            .iter()
            .zip(places)
            .all(|(d, p)| inside(d, p))
        {
            return Ok(self);
        }
        let ([d], [(first, last)]) = (self.dimensions.as_mut_slice(), places.as_slice()) else {
            return Err(wrong("array subscript out of range"));
        };
        let lower = d.lower.min(*first);
        let upper = (d.lower + (d.length - 1)).max(*last);
        let length = total([count((lower, upper))?].into_iter())?;
        upper.checked_add(1).ok_or_else(array::too_large)?;
        let before = (d.lower - lower) as usize;
        let mut values = vec![Datum::Null; before];
        values.append(&mut self.values);
        values.resize(length, Datum::Null);
        *d = Dimension {
            length: length as i32,
            lower,
        };
        self.values = values;
        Ok(self)
    }
}

/// `array_fill(value, lengths[, lower bounds])`.
pub fn fill(element: Element, args: &[Val<'_>]) -> Result<Val<'static>> {
    let (value, lengths) = (args[0].get(), list_of_integers(&args[1])?);
    let lowers = match args.get(2) {
        Some(lowers) => list_of_integers(lowers)?,
        None => vec![1; lengths.len()],
    };
    if lowers.len() != lengths.len() {
        return Err(wrong("wrong number of array subscripts")
            .detail("Low bound array has different size than dimensions array."));
    }
    if lengths.len() > MAX_DIMENSIONS {
        return Err(array::too_many_dimensions(lengths.len()));
    }
    if lengths.iter().any(|length| *length < 0) {
        return Err(array::too_large());
    }
    let count = total(lengths.iter().copied())?;
    if count == 0 || lengths.is_empty() {
        return Ok(Val::Own(Datum::Array(array::list(element, &[])?)));
    }
    let dimension = |(length, lower): (&i32, &i32)| Dimension {
        length: *length,
        lower: *lower,
    };
    let dimensions: Vec<Dimension> = lengths.iter().zip(&lowers).map(dimension).collect();
    let values = vec![value.to_datum(); count];
    let made = array::make(element, &dimensions, &values)?;
    Ok(Val::Own(Datum::Array(made)))
}

/// The lengths or bounds of dimensions.
fn list_of_integers(list: &Val<'_>) -> Result<Vec<i32>> {
    let DatumRef::Array(list) = list.get() else {
        let message = "dimension array or low bound array cannot be null";
        return Err(Error::new("22004", message));
    };
    if list.dimensions().len() > 1 {
        return Err(wrong("wrong number of array subscripts")
            .detail("Dimension array must be one dimensional."));
    }
    let value = |value: DatumRef<'_>| match value {
        DatumRef::Null => Err(Error::new("22004", "dimension values cannot be null")),
        value => int(value),
    };
    list.values().map(value).collect()
}

/// How many of the thresholds, which rise, a value has reached.
pub fn bucket(value: DatumRef<'_>, thresholds: DatumRef<'_>) -> Result<Val<'static>> {
    let (false, DatumRef::Array(thresholds)) = (value.is_null(), thresholds) else {
        return Ok(Val::NULL);
    };
    if thresholds.dimensions().len() > 1 {
        let message = "thresholds must be one-dimensional array";
        return Err(Error::new("2202E", message));
    }
    let all: Vec<DatumRef<'_>> = thresholds.values().collect();
    if all.iter().any(|t| t.is_null()) {
        let message = "thresholds array must not contain NULLs";
        return Err(Error::new("22004", message));
    }
    let (mut low, mut high) = (0, all.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match compare(value, all[middle])?.is_lt() {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    Ok(Val::int4(low as i32))
}
