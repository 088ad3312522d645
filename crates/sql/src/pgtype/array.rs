//! Text and binary forms of arrays: `{1,NULL,"a b"}`, `[0:1]={{1},{2}}`.

use block::array::{Array, ArrayRef, Dimension, MAX_DIMENSIONS, MAX_ELEMENTS};
use block::value::{Datum, DatumRef};
use charset::Encoding;

use super::IoSettings;
use crate::error::{Error, Result};
use crate::types::{Element, SqlType, storage_type};

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}')
}

pub fn too_many_dimensions(count: usize) -> Error {
    Error::new(
        "54000",
        format!(
            "number of array dimensions ({count}) exceeds the maximum allowed ({MAX_DIMENSIONS})"
        ),
    )
}

pub fn too_large() -> Error {
    Error::new(
        "54000",
        format!("array size exceeds the maximum allowed ({MAX_ELEMENTS})"),
    )
}

/// An array of elements of a type.
pub fn make(element: Element, dimensions: &[Dimension], values: &[Datum]) -> Result<Array> {
    if dimensions.len() > MAX_DIMENSIONS {
        return Err(too_many_dimensions(dimensions.len()));
    }
    let beyond = |d: &Dimension| d.lower.checked_add(d.length).is_none();
    if values.len() > MAX_ELEMENTS || dimensions.iter().any(beyond) {
        return Err(too_large());
    }
    Ok(Array::new(storage_type(element.ty())?, dimensions, values))
}

/// One of one dimension that counts from 1.
pub fn list(element: Element, values: &[Datum]) -> Result<Array> {
    let length = i32::try_from(values.len()).map_err(|_| too_large())?;
    make(element, &[Dimension { length, lower: 1 }], values)
}

/// Reads the text form; `read` reads an element.
pub fn parse(element: Element, text: &str, read: &dyn Fn(&str) -> Result<Datum>) -> Result<Array> {
    let mut reader = Reader {
        text,
        rest: text.trim_start_matches(is_space),
        lengths: Vec::new(),
        values: Vec::new(),
        read,
    };
    let bounds = reader.bounds()?;
    if !reader.rest.starts_with('{') {
        return Err(reader.malformed(match bounds.is_empty() {
            true => "Array value must start with \"{\" or dimension information.",
            false => "Array contents must start with \"{\".",
        }));
    }
    reader.level(0)?;
    if !reader.rest.trim_start_matches(is_space).is_empty() {
        return Err(reader.malformed("Junk after closing right brace."));
    }
    // Braces around nothing are an array without dimensions.
    let lengths: Vec<i32> = match reader.values.is_empty() {
        true => Vec::new(),
        false => reader.lengths.iter().map(|n| n.unwrap_or(0)).collect(),
    };
    let dimensions: Vec<Dimension> = match bounds.is_empty() {
        true => lengths
            .iter()
            .map(|length| Dimension {
                length: *length,
                lower: 1,
            })
            .collect(),
        false if bounds.iter().map(|d| d.length).eq(lengths) => bounds,
        false => {
            return Err(reader.malformed("Specified array dimensions do not match array contents."));
        }
    };
    make(element, &dimensions, &reader.values)
}

struct Reader<'t> {
    text: &'t str,
    rest: &'t str,
    /// Of each dimension, once its first list has ended.
    lengths: Vec<Option<i32>>,
    values: Vec<Datum>,
    read: &'t dyn Fn(&str) -> Result<Datum>,
}

impl Reader<'_> {
    fn malformed(&self, detail: &str) -> Error {
        let message = format!("malformed array literal: \"{}\"", self.text);
        Error::new("22P02", message).detail(detail)
    }

    /// `[1:3][0:1]=`
    fn bounds(&mut self) -> Result<Vec<Dimension>> {
        let mut bounds = Vec::new();
        while let Some(rest) = self.rest.strip_prefix('[') {
            let inner = rest.split_once(']');
            let (inner, rest) =
                inner.ok_or_else(|| self.malformed("Missing \"]\" in array dimensions."))?;
            let (lower, upper) = inner.split_once(':').unwrap_or(("1", inner));
            let bound = |n: &str| {
                let n = n.trim_matches(is_space).parse::<i32>();
                n.map_err(|_| {
                    self.malformed("\"[\" must introduce explicitly-specified array dimensions.")
                })
            };
            let (lower, upper) = (bound(lower)?, bound(upper)?);
            if upper < lower {
                return Err(Error::new(
                    "2202E",
                    "upper bound cannot be less than lower bound",
                ));
            }
            let length = upper.checked_sub(lower).and_then(|n| n.checked_add(1));
            bounds.push(Dimension {
                length: length.ok_or_else(too_large)?,
                lower,
            });
            if bounds.len() > MAX_DIMENSIONS {
                return Err(too_many_dimensions(bounds.len()));
            }
            self.rest = rest.trim_start_matches(is_space);
        }
        if !bounds.is_empty() {
            let rest = self.rest.strip_prefix('=');
            let rest =
                rest.ok_or_else(|| self.malformed("Missing \"=\" after array dimensions."))?;
            self.rest = rest.trim_start_matches(is_space);
        }
        Ok(bounds)
    }

    fn skip(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start_matches(is_space);
        self.rest.chars().next()
    }

    fn take(&mut self, c: char) -> bool {
        let found = self.rest.strip_prefix(c);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    /// A list in braces, from its opening one on. All lists of a depth are of one length, and hold
    /// either lists or elements.
    fn level(&mut self, depth: usize) -> Result<()> {
        self.take('{');
        if depth >= MAX_DIMENSIONS {
            return Err(too_many_dimensions(depth + 1));
        }
        let is_new = self.lengths.len() == depth;
        if is_new {
            self.lengths.push(None);
        }
        let uneven = "Multidimensional arrays must have sub-arrays with matching dimensions.";
        let (mut count, mut lists) = (0, false);
        if self.skip() == Some('}') && depth == 0 {
            self.take('}');
        } else {
            loop {
                match self.skip() {
                    Some('{') if count > 0 && !lists => {
                        return Err(self.malformed("Unexpected \"{\" character."));
                    }
                    Some('{') => {
                        lists = true;
                        self.level(depth + 1)?;
                    }
                    Some(c @ (',' | '}')) => {
                        return Err(self.malformed(&format!("Unexpected \"{c}\" character.")));
                    }
                    Some(_) if lists || self.lengths.len() > depth + 1 => {
                        return Err(self.malformed("Unexpected array element."));
                    }
                    Some(_) => self.element()?,
                    None => return Err(self.malformed("Unexpected end of input.")),
                }
                count += 1;
                match self.skip() {
                    Some(',') => self.take(','),
                    Some('}') => {
                        self.take('}');
                        break;
                    }
                    Some(c) => {
                        return Err(self.malformed(&format!("Unexpected \"{c}\" character.")));
                    }
                    None => return Err(self.malformed("Unexpected end of input.")),
                };
            }
        }
        if !lists && self.lengths.len() > depth + 1 {
            return Err(self.malformed(uneven));
        }
        match self.lengths[depth] {
            None => self.lengths[depth] = Some(count),
            Some(before) if before == count => {}
            Some(_) => return Err(self.malformed(uneven)),
        }
        Ok(())
    }

    fn element(&mut self) -> Result<()> {
        let quoted = self.take('"');
        let mut item = String::new();
        // Blanks at the end of an item without quotes are not of it, unless they are escaped.
        let mut kept = 0;
        let mut chars = self.rest.char_indices();
        let end = loop {
            let Some((at, c)) = chars.next() else {
                return Err(self.malformed("Unexpected end of input."));
            };
            match c {
                '\\' => match chars.next() {
                    Some((_, c)) => {
                        item.push(c);
                        kept = item.len();
                    }
                    None => return Err(self.malformed("Unexpected end of input.")),
                },
                '"' if quoted => break at + 1,
                _ if quoted => item.push(c),
                ',' | '}' => break at,
                '{' | '"' => {
                    let message = format!("Unexpected \"{c}\" character.");
                    return Err(self.malformed(&message));
                }
                c => {
                    item.push(c);
                    if !is_space(c) {
                        kept = item.len();
                    }
                }
            }
        };
        let next = self.rest[end..].chars().next();
        self.rest = &self.rest[end..];
        if !quoted {
            item.truncate(kept);
            if item.is_empty() {
                let c = next.unwrap_or('}');
                return Err(self.malformed(&format!("Unexpected \"{c}\" character.")));
            }
        }
        self.values
            .push(match !quoted && item.eq_ignore_ascii_case("null") {
                true => Datum::Null,
                false => (self.read)(&item)?,
            });
        if self.values.len() > MAX_ELEMENTS {
            return Err(too_large());
        }
        Ok(())
    }
}

/// Writes the text form.
pub fn write(ty: SqlType, array: ArrayRef<'_>, io: &IoSettings, out: &mut Vec<u8>) {
    let dimensions: Vec<Dimension> = array.dimensions().collect();
    if dimensions.iter().any(|d| d.lower != 1) {
        for d in &dimensions {
            let bounds = format!("[{}:{}]", d.lower, d.lower + (d.length - 1));
            out.extend_from_slice(bounds.as_bytes());
        }
        out.push(b'=');
    }
    if dimensions.is_empty() {
        out.extend_from_slice(b"{}");
        return;
    }
    // Elements of one list of each dimension, from the last on.
    let mut sizes = vec![1usize; dimensions.len()];
    for (at, d) in dimensions.iter().enumerate().rev() {
        let inner = sizes.get(at + 1).copied().unwrap_or(1);
        sizes[at] = inner * d.length as usize;
    }
    let mut text = Vec::new();
    for (i, value) in array.values().enumerate() {
        if i > 0 {
            let ended = sizes.iter().filter(|size| i % **size == 0).count();
            out.extend(std::iter::repeat_n(b'}', ended));
            out.push(b',');
        }
        let begun = sizes.iter().filter(|size| i % **size == 0).count();
        out.extend(std::iter::repeat_n(b'{', begun));
        if value.is_null() {
            out.extend_from_slice(b"NULL");
            continue;
        }
        text.clear();
        super::text_out(ty, value, io, &mut text);
        write_item(&text, out);
    }
    out.extend(std::iter::repeat_n(b'}', sizes.len()));
}

pub fn write_item(text: &[u8], out: &mut Vec<u8>) {
    let special =
        |b: &u8| matches!(b, b'"' | b'\\' | b'{' | b'}' | b',') || is_space(char::from(*b));
    let quoted = text.is_empty() || text.eq_ignore_ascii_case(b"null") || text.iter().any(special);
    if !quoted {
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    for b in text {
        if matches!(b, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*b);
    }
    out.push(b'"');
}

/// Writes the binary form.
pub fn binary_out(
    ty: SqlType,
    array: ArrayRef<'_>,
    encoding: Encoding,
    out: &mut Vec<u8>,
) -> Result<()> {
    let nulls = array.values().any(|v| v.is_null());
    out.extend_from_slice(&(array.dimensions().len() as u32).to_be_bytes());
    out.extend_from_slice(&u32::from(nulls).to_be_bytes());
    out.extend_from_slice(&ty.oid().to_be_bytes());
    for d in array.dimensions() {
        out.extend_from_slice(&d.length.to_be_bytes());
        out.extend_from_slice(&d.lower.to_be_bytes());
    }
    for value in array.values() {
        sized_out(ty, value, encoding, out)?;
    }
    Ok(())
}

/// Writes the binary form of a part of a value, behind its length.
pub fn sized_out(
    ty: SqlType,
    value: DatumRef<'_>,
    encoding: Encoding,
    out: &mut Vec<u8>,
) -> Result<()> {
    if value.is_null() {
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        return Ok(());
    }
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    super::binary_out(ty, value, encoding, out)?;
    let length = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Reads the binary form.
pub fn binary_in(element: Element, bytes: &[u8], encoding: Encoding) -> Result<Array> {
    let mut rest = bytes;
    let count = word(&mut rest)?;
    let flags = word(&mut rest)?;
    let oid = word(&mut rest)? as u32;
    let bad = |message: String| Error::new("22P03", message);
    if count < 0 {
        return Err(bad(format!("invalid number of dimensions: {count}")));
    }
    if count as usize > MAX_DIMENSIONS {
        return Err(too_many_dimensions(count as usize));
    }
    if !(0..=1).contains(&flags) {
        return Err(bad("invalid array flags".to_string()));
    }
    if oid != element.ty().oid() {
        return Err(Error::new(
            "42804",
            "binary data has array element type OID that does not match",
        ));
    }
    let mut dimensions = Vec::new();
    let mut total = i64::from(count > 0);
    for _ in 0..count {
        let (length, lower) = (word(&mut rest)?, word(&mut rest)?);
        if length < 0 || lower.checked_add(length).is_none() {
            return Err(too_large());
        }
        total = total.saturating_mul(length.into());
        dimensions.push(Dimension { length, lower });
    }
    // Each element has at least its length.
    if total > (rest.len() / 4) as i64 {
        return Err(Error::new("08P01", "insufficient data left in message"));
    }
    let mut values = Vec::with_capacity(total as usize);
    for _ in 0..total {
        let length = word(&mut rest)?;
        if length == -1 {
            values.push(Datum::Null);
            continue;
        }
        let value = usize::try_from(length)
            .ok()
            .and_then(|n| rest.split_at_checked(n));
        let (value, after) =
            value.ok_or_else(|| Error::new("08P01", "insufficient data left in message"))?;
        rest = after;
        values.push(super::binary_in(element.ty(), value, encoding)?);
    }
    match rest.is_empty() {
        true => make(element, &dimensions, &values),
        false => Err(bad("incorrect binary data format".to_string())),
    }
}

fn word(rest: &mut &[u8]) -> Result<i32> {
    let split = rest.split_first_chunk::<4>();
    let (head, tail) =
        split.ok_or_else(|| Error::new("08P01", "insufficient data left in message"))?;
    *rest = tail;
    Ok(i32::from_be_bytes(*head))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String> {
        let io = IoSettings::default();
        let element = Element::of(SqlType::Text).unwrap();
        let array = parse(element, text, &|t| Ok(Datum::Text(t.to_string())))?;
        let mut binary = Vec::new();
        binary_out(SqlType::Text, array.borrow(), Encoding::UTF8, &mut binary).unwrap();
        assert_eq!(binary_in(element, &binary, Encoding::UTF8).unwrap(), array);
        for cut in 0..binary.len() {
            assert!(binary_in(element, &binary[..cut], Encoding::UTF8).is_err());
        }
        let mut out = Vec::new();
        write(SqlType::Text, array.borrow(), &io, &mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn arrays_are_read_as_in_postgresql() {
        let cases = [
            (" { } ", "{}"),
            ("{1, 2 ,3}", "{1,2,3}"),
            (
                r#"{a b,null,NULL,"a,\"b\\}",x\ }"#,
                r#"{"a b",NULL,NULL,"a,\"b\\}","x "}"#,
            ),
            (r#"{"NULL",""}"#, r#"{"NULL",""}"#),
            ("{{1,2},{3,4}}", "{{1,2},{3,4}}"),
            ("{{1},{2}} ", "{{1},{2}}"),
            ("[0:1]={a,b}", "[0:1]={a,b}"),
            ("[2:2][1:2] = {{a,b}}", "[2:2][1:2]={{a,b}}"),
        ];
        for (text, shown) in cases {
            assert_eq!(read(text).unwrap(), shown, "{text}");
        }
        for bad in [
            "",
            "1,2",
            "{1,}",
            "{,1}",
            "{\"a}",
            "{\"a\"b}",
            "{a}b}",
            "{\\}",
            "{{1},{2,3}}",
            "{1,{2}}",
            "{{1},2}",
            "{{},{}}",
            "{{}}",
            "[1:2]={a}",
            "[1:2]{a,b}",
            "{a",
            "{{{1}}",
            "{a{b}",
        ] {
            assert_eq!(read(bad).unwrap_err().sqlstate(), "22P02", "{bad}");
        }
        assert_eq!(read("{{{{{{{1}}}}}}}").unwrap_err().sqlstate(), "54000");
        assert_eq!(read("[2:1]={}").unwrap_err().sqlstate(), "2202E");
    }
}
