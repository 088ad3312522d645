//! Rows of a view as bytes, from one instance to another, perhaps of another version: so they say what they are.
//!
//! `version u8 | columns u16 | (type u32, name length u8, name) for each | rows u32 | the values, row by row: tag u8 and what the tag says`, little-endian.
//! Types are PostgreSQL's object ids.
//!
//! What arrives is checked to the last byte before a row of it is used: every value has its column's type, nothing is missing and nothing left over.

use block::value::Datum;

use super::Rows;
use crate::types::SqlType;

const VERSION: u8 = 1;

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT2: u8 = 3;
const INT4: u8 = 4;
const INT8: u8 = 5;
const FLOAT4: u8 = 6;
const FLOAT8: u8 = 7;
const TEXT: u8 = 8;
const TIMESTAMPTZ: u8 = 9;
const BYTES: u8 = 10;

pub type Columns = [(&'static str, SqlType)];

/// An error: a value of a kind that views do not have.
pub fn encode(columns: &Columns, rows: &Rows) -> Result<Vec<u8>, String> {
    let mut out = vec![VERSION];
    out.extend((columns.len() as u16).to_le_bytes());
    for (name, ty) in columns {
        out.extend(ty.oid().to_le_bytes());
        out.push(name.len() as u8);
        out.extend(name.as_bytes());
    }
    let count = u32::try_from(rows.len()).map_err(|_| format!("{} rows", rows.len()))?;
    out.extend(count.to_le_bytes());
    for row in rows {
        for ((name, _), value) in columns.iter().zip(row) {
            put(value, &mut out).map_err(|e| format!("column {name}: {e}"))?;
        }
    }
    Ok(out)
}

fn put(value: &Datum, out: &mut Vec<u8>) -> Result<(), String> {
    let mut tagged = |tag: u8, bytes: &[u8]| {
        out.push(tag);
        out.extend(bytes);
    };
    match value {
        Datum::Null => tagged(NULL, &[]),
        Datum::Bool(false) => tagged(FALSE, &[]),
        Datum::Bool(true) => tagged(TRUE, &[]),
        Datum::Int2(n) => tagged(INT2, &n.to_le_bytes()),
        Datum::Int4(n) => tagged(INT4, &n.to_le_bytes()),
        Datum::Int8(n) => tagged(INT8, &n.to_le_bytes()),
        Datum::Float4(x) => tagged(FLOAT4, &x.to_le_bytes()),
        Datum::Float8(x) => tagged(FLOAT8, &x.to_le_bytes()),
        Datum::TimestampTz(t) => tagged(TIMESTAMPTZ, &t.to_le_bytes()),
        Datum::Text(s) => {
            let length = u32::try_from(s.len()).map_err(|_| "a text of over 4 GB".to_string())?;
            tagged(TEXT, &length.to_le_bytes());
            out.extend(s.as_bytes());
        }
        Datum::Bytea(bytes) => {
            let length = u32::try_from(bytes.len());
            let length = length.map_err(|_| "over 4 GB of bytes".to_string())?;
            tagged(BYTES, &length.to_le_bytes());
            out.extend(bytes);
        }
        other => return Err(format!("not supported between instances: {other:?}")),
    }
    Ok(())
}

/// The rows with the columns asked for, by their names: what an older instance does not have is null, what only a newer one has is left out. An error says what is wrong with the bytes.
pub fn decode(bytes: &[u8], wanted: &Columns) -> Result<Rows, String> {
    let mut r = Reader(bytes);
    let (places, types) = header(&mut r, wanted)?;
    let count = u32::from_le_bytes(r.take()?) as usize;
    // A value has a byte at least: a count beyond that is a lie, and would only make us ask for memory.
    if count > r.0.len() / types.len() {
        return Err(format!("{count} rows in {} bytes", r.0.len()));
    }
    let mut rows = Rows::with_capacity(count);
    for _ in 0..count {
        let mut row = vec![Datum::Null; wanted.len()];
        for (place, ty) in places.iter().zip(&types) {
            let value = value(&mut r)?;
            if !has_type(&value, *ty) {
                return Err(format!("a value {value:?} in a column of type {ty}"));
            }
            if let Some(at) = place {
                row[*at] = value;
            }
        }
        rows.push(row);
    }
    match r.0.len() {
        0 => Ok(rows),
        n => Err(format!("{n} bytes more than rows")),
    }
}

/// For each column that came: its place among the wanted ones, and its type's object id.
fn header(r: &mut Reader<'_>, wanted: &Columns) -> Result<(Vec<Option<usize>>, Vec<u32>), String> {
    let [version] = r.take()?;
    if version != VERSION {
        return Err(format!(
            "rows in format {version}, this instance reads {VERSION}"
        ));
    }
    let count = u16::from_le_bytes(r.take()?);
    if count == 0 {
        return Err("rows without columns".to_string());
    }
    let (mut places, mut types) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let ty = u32::from_le_bytes(r.take()?);
        let [length] = r.take()?;
        let name = r.bytes(length.into())?;
        let found = wanted.iter().position(|(n, _)| n.as_bytes() == name);
        if let Some(at) = found {
            let (name, own) = wanted[at];
            if own.oid() != ty {
                return Err(format!(
                    "column {name} has type {ty} there, {} here",
                    own.oid()
                ));
            }
            if places.contains(&found) {
                return Err(format!("column {name} twice"));
            }
        }
        places.push(found);
        types.push(ty);
    }
    Ok((places, types))
}

fn value(r: &mut Reader<'_>) -> Result<Datum, String> {
    let [tag] = r.take()?;
    Ok(match tag {
        NULL => Datum::Null,
        FALSE => Datum::Bool(false),
        TRUE => Datum::Bool(true),
        INT2 => Datum::Int2(i16::from_le_bytes(r.take()?)),
        INT4 => Datum::Int4(i32::from_le_bytes(r.take()?)),
        INT8 => Datum::Int8(i64::from_le_bytes(r.take()?)),
        FLOAT4 => Datum::Float4(f32::from_le_bytes(r.take()?)),
        FLOAT8 => Datum::Float8(f64::from_le_bytes(r.take()?)),
        TIMESTAMPTZ => Datum::TimestampTz(i64::from_le_bytes(r.take()?)),
        TEXT => {
            let length = u32::from_le_bytes(r.take()?);
            let text = std::str::from_utf8(r.bytes(length as usize)?);
            Datum::Text(text.map_err(|e| format!("a text: {e}"))?.to_string())
        }
        BYTES => {
            let length = u32::from_le_bytes(r.take()?);
            Datum::Bytea(r.bytes(length as usize)?.to_vec())
        }
        other => return Err(format!("a value of kind {other}")),
    })
}

fn has_type(value: &Datum, ty: u32) -> bool {
    let fits = |ty: SqlType| match value {
        Datum::Null => true,
        Datum::Bool(_) => ty == SqlType::Bool,
        Datum::Int2(_) => ty == SqlType::Int2,
        Datum::Int4(_) => ty == SqlType::Int4,
        Datum::Int8(_) => matches!(ty, SqlType::Int8 | SqlType::Oid),
        Datum::Float4(_) => ty == SqlType::Float4,
        Datum::Float8(_) => ty == SqlType::Float8,
        Datum::Text(_) => matches!(ty, SqlType::Text | SqlType::Name),
        Datum::TimestampTz(_) => ty == SqlType::TimestampTz,
        Datum::Bytea(_) => matches!(ty, SqlType::Bytea | SqlType::Inet),
        _ => false,
    };
    // Of a type that this version does not know nothing is used.
    SqlType::from_oid(ty).is_none_or(fits)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or("it ends too soon")?;
        self.0 = tail;
        Ok(*head)
    }
    fn bytes(&mut self, n: usize) -> Result<&'a [u8], String> {
        let (head, tail) = self.0.split_at_checked(n).ok_or("it ends too soon")?;
        self.0 = tail;
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COLUMNS: &Columns = &[
        ("flag", SqlType::Bool),
        ("small", SqlType::Int2),
        ("sid", SqlType::Int4),
        ("oid", SqlType::Oid),
        ("ratio", SqlType::Float8),
        ("event", SqlType::Text),
        ("at", SqlType::TimestampTz),
    ];

    fn rows() -> Rows {
        let one = vec![
            Datum::Bool(true),
            Datum::Int2(-2),
            Datum::Int4(7),
            Datum::Int8(1259),
            Datum::Float8(0.5),
            Datum::Text("gc cr block 2-way".into()),
            Datum::TimestampTz(i64::MIN),
        ];
        vec![one, vec![Datum::Null; COLUMNS.len()]]
    }

    #[test]
    fn rows_come_back_and_nothing_shorter_or_longer_does() {
        let bytes = encode(COLUMNS, &rows()).unwrap();
        assert_eq!(decode(&bytes, COLUMNS), Ok(rows()));
        for n in 0..bytes.len() {
            assert!(decode(&bytes[..n], COLUMNS).is_err(), "cut to {n} bytes");
        }
        assert!(decode(&[&bytes[..], &[0]].concat(), COLUMNS).is_err());
        assert_eq!(
            decode(&encode(COLUMNS, &Rows::new()).unwrap(), COLUMNS),
            Ok(Rows::new())
        );
    }

    /// An instance of the version before or after this one is asked, or asks.
    #[test]
    fn columns_are_found_by_their_names() {
        let bytes = encode(COLUMNS, &rows()).unwrap();
        let newer: &Columns = &[
            ("event", SqlType::Text),
            ("added", SqlType::Int8),
            ("sid", SqlType::Int4),
        ];
        let expected = vec![
            Datum::Text("gc cr block 2-way".into()),
            Datum::Null,
            Datum::Int4(7),
        ];
        assert_eq!(decode(&bytes, newer).unwrap()[0], expected);
        let other: &Columns = &[("sid", SqlType::Int8)];
        assert!(
            decode(&bytes, other)
                .unwrap_err()
                .contains("column sid has type")
        );
        let twice = encode(&[COLUMNS[0], COLUMNS[0]], &vec![vec![Datum::Null; 2]]).unwrap();
        assert!(decode(&twice, COLUMNS).unwrap_err().contains("twice"));
        assert!(decode(&[2], COLUMNS).unwrap_err().contains("format 2"));
    }

    #[test]
    fn a_value_must_have_its_columns_type() {
        let bytes = encode(
            &[("sid", SqlType::Int4)],
            &vec![vec![Datum::Text("x".into())]],
        )
        .unwrap();
        assert!(
            decode(&bytes, &[("sid", SqlType::Int4)])
                .unwrap_err()
                .contains("in a column")
        );
        let count = [&bytes[..bytes.len() - 6], &[0xff; 4], &[0; 6]].concat();
        assert!(decode(&count, &[("sid", SqlType::Int4)]).is_err());
        assert!(encode(&[("d", SqlType::Date)], &vec![vec![Datum::Date(1)]]).is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_an_error_and_nothing_worse(at in any::<prop::sample::Index>(), value: u8, tail in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut bytes = encode(COLUMNS, &rows()).unwrap();
            let at = at.index(bytes.len());
            bytes[at] = value;
            if let Ok(rows) = decode(&bytes, COLUMNS) {
                for row in rows {
                    for (value, (_, ty)) in row.iter().zip(COLUMNS) {
                        prop_assert!(has_type(value, ty.oid()));
                    }
                }
            }
            bytes.truncate(at);
            bytes.extend(tail);
            let _ = decode(&bytes, COLUMNS);
        }
    }
}
