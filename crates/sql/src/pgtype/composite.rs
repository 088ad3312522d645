//! Text and binary forms of rows, PostgreSQL's `record_in` and its kin.

use block::composite::{Composite, CompositeRef};
use block::value::{Datum, DatumRef};
use charset::Encoding;

use super::array::sized_out;
use super::{IoSettings, vectors};
use crate::error::{Error, Result};
use crate::types::SqlType;
use crate::types::composite::{CompositeType, Field};

/// A row of a type whose fields are known. The modifiers of the fields are applied.
pub fn make(row: CompositeType, values: &[DatumRef<'_>]) -> Result<Datum> {
    let made = Composite::new(&row.kinds(), values);
    made.map(Datum::Composite)
        .ok_or_else(|| Error::new("54001", "stack depth limit exceeded"))
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// Reads `(1,,"a b")`.
pub fn parse(row: CompositeType, text: &str, io: &IoSettings) -> Result<Datum> {
    let Some(fields) = row.fields().filter(|_| !row.is_record()) else {
        return Err(vectors::no_input_of_rows());
    };
    let malformed = |detail: &str| {
        let message = format!("malformed record literal: \"{text}\"");
        Error::new("22P02", message).detail(detail)
    };
    let rest = text.trim_start_matches(is_space);
    let mut rest = rest
        .strip_prefix('(')
        .ok_or_else(|| malformed("Missing left parenthesis."))?;
    let mut values = Vec::with_capacity(fields.len());
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            rest = rest
                .strip_prefix(',')
                .ok_or_else(|| malformed("Too few columns."))?;
        }
        values.push(match rest.chars().next() {
            Some(',' | ')') => Datum::Null,
            _ => {
                let (item, after) =
                    item(rest).ok_or_else(|| malformed("Unexpected end of input."))?;
                rest = after;
                read(field, &item, io)?
            }
        });
    }
    let rest = rest
        .strip_prefix(')')
        .ok_or_else(|| malformed("Too many columns."))?;
    if !rest.trim_start_matches(is_space).is_empty() {
        return Err(malformed("Junk after right parenthesis."));
    }
    let values: Vec<DatumRef<'_>> = values.iter().map(Datum::borrow).collect();
    make(row, &values)
}

fn read(field: &Field, text: &str, io: &IoSettings) -> Result<Datum> {
    let value = super::text_in_typmod(field.ty, field.typmod, text, io)?;
    super::apply_typmod(field.ty, field.typmod, value, false)
}

/// A field's text, and what follows it; `None`: it does not end.
fn item(text: &str) -> Option<(String, &str)> {
    let mut item = String::new();
    let mut quoted = false;
    let mut chars = text.char_indices().peekable();
    loop {
        let &(at, c) = chars.peek()?;
        if !quoted && matches!(c, ',' | ')') {
            return Some((item, &text[at..]));
        }
        chars.next();
        match c {
            '\\' => item.push(chars.next()?.1),
            '"' if quoted && matches!(chars.peek(), Some((_, '"'))) => {
                chars.next();
                item.push('"');
            }
            '"' => quoted = !quoted,
            c => item.push(c),
        }
    }
}

/// Writes the text form.
pub fn write(row: CompositeType, value: CompositeRef<'_>, io: &IoSettings, out: &mut Vec<u8>) {
    out.push(b'(');
    let mut text = Vec::new();
    for (at, (kind, field)) in value.kinds().zip(value.values()).enumerate() {
        if at > 0 {
            out.push(b',');
        }
        if field.is_null() {
            continue;
        }
        text.clear();
        let ty = row.field_type(at, kind.number);
        super::text_out(ty.unwrap_or(SqlType::Text), field, io, &mut text);
        write_item(&text, out);
    }
    out.push(b')');
}

fn write_item(text: &[u8], out: &mut Vec<u8>) {
    let special =
        |b: &u8| matches!(b, b'"' | b'\\' | b'(' | b')' | b',') || is_space(char::from(*b));
    if !text.is_empty() && !text.iter().any(special) {
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    for b in text {
        if matches!(b, b'"' | b'\\') {
            out.push(*b);
        }
        out.push(*b);
    }
    out.push(b'"');
}

/// Writes the binary form.
pub fn binary_out(
    row: CompositeType,
    value: CompositeRef<'_>,
    encoding: Encoding,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.extend_from_slice(&(value.count() as u32).to_be_bytes());
    for (at, (kind, field)) in value.kinds().zip(value.values()).enumerate() {
        out.extend_from_slice(&row.sent_number(at, kind.number).to_be_bytes());
        let ty = row.field_type(at, kind.number);
        sized_out(ty.unwrap_or(SqlType::Text), field, encoding, out)?;
    }
    Ok(())
}

/// Reads the binary form.
pub fn binary_in(row: CompositeType, bytes: &[u8], encoding: Encoding) -> Result<Datum> {
    let Some(fields) = row.fields().filter(|_| !row.is_record()) else {
        return Err(vectors::no_input_of_rows());
    };
    let mut rest = bytes;
    let count = word(&mut rest)?;
    if usize::try_from(count) != Ok(fields.len()) {
        let message = format!(
            "wrong number of columns: {count}, expected {}",
            fields.len()
        );
        return Err(Error::new("42804", message));
    }
    let mut values = Vec::with_capacity(fields.len());
    for (field, number) in fields.iter().zip(1..) {
        let oid = word(&mut rest)? as u32;
        if oid != field.declared.oid() {
            let message = format!(
                "binary data has type {oid} instead of expected {} ({}) in record column {number}",
                field.declared.oid(),
                field.declared.name()
            );
            return Err(Error::new("42804", message));
        }
        let length = word(&mut rest)?;
        if length == -1 {
            values.push(Datum::Null);
            continue;
        }
        let value = usize::try_from(length)
            .ok()
            .and_then(|n| rest.split_at_checked(n));
        let (value, after) = value.ok_or_else(short)?;
        rest = after;
        let value = super::binary_in(field.ty, value, encoding)?;
        values.push(super::apply_typmod(field.ty, field.typmod, value, false)?);
    }
    if !rest.is_empty() {
        return Err(Error::new("22P03", "improper binary format in record"));
    }
    let values: Vec<DatumRef<'_>> = values.iter().map(Datum::borrow).collect();
    make(row, &values)
}

fn short() -> Error {
    Error::new("08P01", "insufficient data left in message")
}

fn word(rest: &mut &[u8]) -> Result<i32> {
    let (head, tail) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    *rest = tail;
    Ok(i32::from_be_bytes(*head))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> CompositeType {
        let field = |name: &str, ty| Field::new(name.to_string(), ty, -1);
        CompositeType::of(crate::types::composite::CompositeDef {
            oid: 90_001,
            array_oid: 90_002,
            names: ["pair".to_string(), "pair[]".to_string()],
            internal_names: ["pair".to_string(), "_pair".to_string()],
            fields: Some(vec![field("a", SqlType::Int4), field("b", SqlType::Text)]),
        })
    }

    fn shown(text: &str) -> Result<String> {
        let io = IoSettings::default();
        let value = parse(row(), text, &io)?;
        let Datum::Composite(value) = value else {
            panic!("a row is a row");
        };
        let mut binary = Vec::new();
        binary_out(row(), value.borrow(), Encoding::UTF8, &mut binary).unwrap();
        let read = binary_in(row(), &binary, Encoding::UTF8).unwrap();
        assert_eq!(read, Datum::Composite(value.clone()));
        for cut in 0..binary.len() {
            assert!(binary_in(row(), &binary[..cut], Encoding::UTF8).is_err());
        }
        let mut out = Vec::new();
        write(CompositeType::any(), value.borrow(), &io, &mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn rows_are_read_as_in_postgresql() {
        for (text, expected) in [
            (" (1,a) ", "(1,a)"),
            ("(,)", "(,)"),
            (r#"( 1 ," a,")"#, r#"(1," a,")"#),
            (r#"(1,"a""b\\")"#, r#"(1,"a""b\\")"#),
            (r#"(1,"")"#, r#"(1,"")"#),
            (r"(1,a\,b)", r#"(1,"a,b")"#),
            (r#"(1,x"y"z)"#, "(1,xyz)"),
        ] {
            assert_eq!(shown(text).unwrap(), expected, "{text}");
        }
        for bad in [
            "", "1,2", "(1", "(1)", "(1,a,b)", "(1,a)x", "(1,\"a)", "(1,a\\",
        ] {
            assert_eq!(shown(bad).unwrap_err().sqlstate(), "22P02", "{bad}");
        }
    }
}
