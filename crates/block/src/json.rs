//! `jsonb` as values: documents in a form in which a key or an element is found without reading
//! the rest.
//!
//! ```text
//! value:  0 null | 1 false | 2 true | 3 number: as in `numeric` | 4 string: its bytes
//!         | 5 array: count u32, the end of each value u32, values
//!         | 6 object: count u32, the end of each key u32, the end of each value u32, keys, values
//! ```
//!
//! Ends are counted from the first value, or the first key. Keys are in the order of their lengths,
//! and of their bytes within a length, each once. That is the order in which PostgreSQL shows them.
//!
//! **Invariant.** What a [`JsonRef`] stands for was read to its end when it was made, so that its
//! parts can be read without errors.

use std::cmp::Ordering;

use crate::key::{self, Order};
use crate::numeric::{Numeric, NumericRef};
use crate::value::{ColType, DatumRef};
use crate::{BlockError, Result};

/// How deep arrays and objects nest at most: what reads them recurses.
pub const MAX_DEPTH: usize = 1000;

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const NUMBER: u8 = 3;
const STRING: u8 = 4;
const ARRAY: u8 = 5;
const OBJECT: u8 = 6;

/// Bytes of a count or an end.
const WORD: usize = 4;

/// An owned document.
#[derive(Clone, PartialEq, Debug)]
pub struct Json(Vec<u8>);

/// A document, or a part of one, that lies somewhere else.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct JsonRef<'a>(&'a [u8]);

/// A document while it is made.
#[derive(Clone, PartialEq, Debug)]
pub enum Node {
    Null,
    Bool(bool),
    Number(Numeric),
    String(String),
    Array(Vec<Node>),
    /// In any order; of a key that is there twice the last one counts.
    Object(Vec<(String, Node)>),
    /// A part that is taken over as it is.
    Whole(Json),
}

/// What a document is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum View<'a> {
    Null,
    Bool(bool),
    Number(NumericRef<'a>),
    String(&'a str),
    Array(Items<'a>),
    Object(Pairs<'a>),
}

/// The elements of an array.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Items<'a> {
    ends: &'a [u8],
    values: &'a [u8],
}

/// The keys and values of an object.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pairs<'a> {
    key_ends: &'a [u8],
    keys: &'a [u8],
    values: Items<'a>,
}

fn word(n: usize) -> [u8; WORD] {
    let n = u32::try_from(n).expect("invariant: a document is smaller than 4 GiB");
    n.to_le_bytes()
}

fn end(ends: &[u8], at: usize) -> usize {
    let word = &ends[at * WORD..][..WORD];
    u32::from_le_bytes([word[0], word[1], word[2], word[3]]) as usize
}

/// The order of keys within an object.
fn key_order(a: &str, b: &str) -> Ordering {
    (a.len(), a.as_bytes()).cmp(&(b.len(), b.as_bytes()))
}

impl Node {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Node::Null => out.push(NULL),
            Node::Bool(false) => out.push(FALSE),
            Node::Bool(true) => out.push(TRUE),
            Node::Number(n) => {
                out.push(NUMBER);
                out.extend_from_slice(n.as_bytes());
            }
            Node::String(s) => {
                out.push(STRING);
                out.extend_from_slice(s.as_bytes());
            }
            Node::Array(items) => {
                out.push(ARRAY);
                out.extend_from_slice(&word(items.len()));
                write_values(items.iter(), items.len(), out, |_| {});
            }
            Node::Object(pairs) => write_object(pairs, out),
            Node::Whole(json) => out.extend_from_slice(&json.0),
        }
    }
}

/// The ends of values and the values; `between` adds what stands between.
fn write_values<'n>(
    values: impl Iterator<Item = &'n Node>,
    count: usize,
    out: &mut Vec<u8>,
    between: impl FnOnce(&mut Vec<u8>),
) {
    let ends = out.len();
    out.resize(ends + count * WORD, 0);
    between(out);
    let start = out.len();
    for (at, value) in values.enumerate() {
        value.write(out);
        let here = word(out.len() - start);
        out[ends + at * WORD..][..WORD].copy_from_slice(&here);
    }
}

fn write_object(pairs: &[(String, Node)], out: &mut Vec<u8>) {
    let mut sorted: Vec<&(String, Node)> = pairs.iter().collect();
    // Stable, so that of equal keys the last one stays last, and is kept.
    sorted.sort_by(|a, b| key_order(&a.0, &b.0));
    let mut kept: Vec<&(String, Node)> = Vec::with_capacity(sorted.len());
    for pair in sorted {
        match kept.last_mut() {
            Some(last) if last.0 == pair.0 => *last = pair,
            _ => kept.push(pair),
        }
    }
    out.push(OBJECT);
    out.extend_from_slice(&word(kept.len()));
    let mut key_end = 0;
    for (key, _) in &kept {
        key_end += key.len();
        out.extend_from_slice(&word(key_end));
    }
    let keys = |out: &mut Vec<u8>| {
        kept.iter()
            .for_each(|(key, _)| out.extend_from_slice(key.as_bytes()));
    };
    write_values(kept.iter().map(|p| &p.1), kept.len(), out, keys);
}

impl Json {
    pub fn new(node: &Node) -> Json {
        let mut bytes = Vec::new();
        node.write(&mut bytes);
        Json(bytes)
    }

    pub fn borrow(&self) -> JsonRef<'_> {
        JsonRef(&self.0)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn corrupt() -> BlockError {
    BlockError::corrupt("a jsonb value is damaged")
}

impl<'a> JsonRef<'a> {
    /// Checks all of the bytes.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<JsonRef<'a>> {
        check(bytes, 0)?;
        Ok(JsonRef(bytes))
    }

    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    pub fn to_json(self) -> Json {
        Json(self.0.to_vec())
    }

    /// As PostgreSQL orders documents: the order of keys.
    pub fn compare(self, other: JsonRef<'_>) -> Ordering {
        let key = |v| {
            let mut key = Vec::new();
            key::push_column(&mut key, ColType::Json, Order::ASC, DatumRef::Json(v));
            key
        };
        key(self).cmp(&key(other))
    }

    pub fn view(self) -> View<'a> {
        let body = &self.0[1..];
        match self.0[0] {
            NULL => View::Null,
            FALSE => View::Bool(false),
            TRUE => View::Bool(true),
            NUMBER => View::Number(
                NumericRef::from_bytes(body).expect("invariant: the number was checked"),
            ),
            STRING => {
                View::String(std::str::from_utf8(body).expect("invariant: the string was checked"))
            }
            ARRAY => {
                let count = end(body, 0);
                let (ends, values) = body[WORD..].split_at(count * WORD);
                View::Array(Items { ends, values })
            }
            _ => {
                let count = end(body, 0);
                let (key_ends, rest) = body[WORD..].split_at(count * WORD);
                let (ends, rest) = rest.split_at(count * WORD);
                let keys = count.checked_sub(1).map_or(0, |last| end(key_ends, last));
                let (keys, values) = rest.split_at(keys);
                View::Object(Pairs {
                    key_ends,
                    keys,
                    values: Items { ends, values },
                })
            }
        }
    }

    /// The value as one that can be changed, whose parts are taken over as they are.
    pub fn opened(self) -> Node {
        let whole = |v: JsonRef<'_>| Node::Whole(v.to_json());
        match self.view() {
            View::Array(items) => Node::Array(items.iter().map(whole).collect()),
            View::Object(pairs) => {
                let pairs = pairs.iter().map(|(k, v)| (k.to_string(), whole(v)));
                Node::Object(pairs.collect())
            }
            _ => whole(self),
        }
    }
}

/// Reads ends that must ascend; the last one.
fn checked_ends(ends: &[u8], room: usize) -> Result<usize> {
    let mut last = 0;
    for at in 0..ends.len() / WORD {
        let next = end(ends, at);
        if next < last || next > room {
            return Err(corrupt());
        }
        last = next;
    }
    Ok(last)
}

fn check(bytes: &[u8], depth: usize) -> Result<()> {
    let (tag, body) = bytes.split_first().ok_or_else(corrupt)?;
    if depth > MAX_DEPTH {
        return Err(corrupt());
    }
    match *tag {
        NULL | FALSE | TRUE => {
            return if body.is_empty() {
                Ok(())
            } else {
                Err(corrupt())
            };
        }
        NUMBER => return NumericRef::from_bytes(body).map(|_| ()),
        STRING => return std::str::from_utf8(body).map(|_| ()).map_err(|_| corrupt()),
        ARRAY | OBJECT => {}
        _ => return Err(corrupt()),
    }
    let (count, rest) = body.split_at_checked(WORD).ok_or_else(corrupt)?;
    let words = end(count, 0).checked_mul(WORD).ok_or_else(corrupt)?;
    let (mut ends, mut rest) = rest.split_at_checked(words).ok_or_else(corrupt)?;
    if *tag == OBJECT {
        let key_ends = ends;
        (ends, rest) = rest.split_at_checked(words).ok_or_else(corrupt)?;
        let keys = checked_ends(key_ends, rest.len())?;
        check_keys(key_ends, &rest[..keys])?;
        rest = &rest[keys..];
    }
    if checked_ends(ends, rest.len())? != rest.len() {
        return Err(corrupt());
    }
    let mut start = 0;
    for at in 0..ends.len() / WORD {
        let next = end(ends, at);
        check(&rest[start..next], depth + 1)?;
        start = next;
    }
    Ok(())
}

fn check_keys(ends: &[u8], keys: &[u8]) -> Result<()> {
    let keys = std::str::from_utf8(keys).map_err(|_| corrupt())?;
    let (mut start, mut last) = (0, None);
    for at in 0..ends.len() / WORD {
        let next = end(ends, at);
        let key = keys.get(start..next).ok_or_else(corrupt)?;
        if last.is_some_and(|last| key_order(last, key).is_ge()) {
            return Err(corrupt());
        }
        (start, last) = (next, Some(key));
    }
    Ok(())
}

impl<'a> Items<'a> {
    pub fn len(self) -> usize {
        self.ends.len() / WORD
    }

    pub fn is_empty(self) -> bool {
        self.ends.is_empty()
    }

    pub fn get(self, at: usize) -> Option<JsonRef<'a>> {
        if at >= self.len() {
            return None;
        }
        let start = at.checked_sub(1).map_or(0, |before| end(self.ends, before));
        Some(JsonRef(&self.values[start..end(self.ends, at)]))
    }

    pub fn iter(self) -> impl Iterator<Item = JsonRef<'a>> {
        (0..self.len()).filter_map(move |at| self.get(at))
    }
}

impl<'a> Pairs<'a> {
    pub fn len(self) -> usize {
        self.values.len()
    }

    pub fn is_empty(self) -> bool {
        self.values.is_empty()
    }

    fn key(self, at: usize) -> &'a str {
        let start = at
            .checked_sub(1)
            .map_or(0, |before| end(self.key_ends, before));
        let key = &self.keys[start..end(self.key_ends, at)];
        std::str::from_utf8(key).expect("invariant: keys were checked")
    }

    pub fn get(self, key: &str) -> Option<JsonRef<'a>> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match key_order(key, self.key(middle)) {
                Ordering::Equal => return self.values.get(middle),
                Ordering::Less => high = middle,
                Ordering::Greater => low = middle + 1,
            }
        }
        None
    }

    pub fn iter(self) -> impl Iterator<Item = (&'a str, JsonRef<'a>)> {
        (0..self.len()).filter_map(move |at| Some((self.key(at), self.values.get(at)?)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn node() -> impl Strategy<Value = Node> {
        let number = prop_oneof![
            (-3i64..4).prop_map(Numeric::from),
            Just("1.50".parse().unwrap()),
            Just("1.5".parse().unwrap()),
            Just("-1e-20".parse().unwrap()),
        ];
        let leaf = prop_oneof![
            Just(Node::Null),
            any::<bool>().prop_map(Node::Bool),
            number.prop_map(Node::Number),
            "[ab\0ä]{0,2}".prop_map(Node::String),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Node::Array),
                proptest::collection::vec(("[abä]{0,2}", inner), 0..4).prop_map(Node::Object),
            ]
        })
    }

    /// What was put in, each key once.
    fn same(node: &Node, json: JsonRef<'_>) -> bool {
        match (node, json.view()) {
            (Node::Null, View::Null) => true,
            (Node::Bool(a), View::Bool(b)) => *a == b,
            (Node::Number(a), View::Number(b)) => a.as_bytes() == b.as_bytes(),
            (Node::String(a), View::String(b)) => a == b,
            (Node::Array(a), View::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| same(a, b))
            }
            (Node::Object(a), View::Object(b)) => {
                let last = |key: &str| a.iter().rev().find(|(k, _)| k == key).map(|p| &p.1);
                a.iter().all(|(k, _)| b.get(k).is_some())
                    && b.iter().all(|(k, v)| last(k).is_some_and(|n| same(n, v)))
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn documents_read_back(node in node()) {
            let json = Json::new(&node);
            let read = JsonRef::from_bytes(json.as_bytes()).unwrap();
            prop_assert!(same(&node, read));
            prop_assert_eq!(&Json::new(&read.opened()), &json);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(
            node in node(),
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..3),
        ) {
            let mut bytes = Json::new(&node).as_bytes().to_vec();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(read) = JsonRef::from_bytes(&bytes) {
                let again = Json::new(&read.opened());
                prop_assert_eq!(again.as_bytes(), &bytes[..]);
            }
        }
    }
}
