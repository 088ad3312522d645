//! The keys of inverted indexes, which have several of a row: each element of an array, each key
//! and value of a `jsonb` document, each trigram of a string; and of a hash index, whose rows have
//! one each.
//!
//! ```text
//! column of the index u8 | what the key is u8 | its bytes, or a digest of them
//! ```
//!
//! **Invariants.**
//! - Values that are equal have the same key, and no key is the beginning of another. Different
//!   values may have one key: whoever finds a row by it looks at the row.
//! - A row that meets a condition ([`Strategy`]) is among what [`KeyClass::wanted`] asks for.
//! - The keys are on disk, and so the same on every instance and for ever, with one exception:
//!   those of trigrams, and of text whose case does not count, depend on the tables of Unicode in
//!   the program. After an upgrade to others `REINDEX` makes them anew
//!   (docs/decisions/0098-inverted-indexes-are-trees.md).

use std::sync::Arc;

use block::array::ArrayRef;
use block::json::{JsonRef, View};
use block::key::{Order, push_column};
use block::value::{ColType, DatumRef};
use engine::{ComputeError, ComputedKey, InvertedKeys, Wanted};

use super::computed::IndexKeys;
use super::trigrams::{self, Trigram};
use crate::error::{Error, Result};
use crate::expr::sha::Sha;
use crate::session::cancelled;

/// Bytes of a value that is kept as it is. PostgreSQL refuses long elements of arrays; here a
/// digest stands for them.
const LONGEST: usize = 64;
const DIGEST: usize = 16;
/// Keys that are made between two looks at whether the statement is cancelled.
const CANCEL_CHECK_KEYS: usize = 1_000;

/// What a key is.
mod kind {
    /// An array without elements.
    pub const EMPTY: u8 = 0;
    pub const NULL: u8 = 1;
    pub const VALUE: u8 = 2;
    /// A key of an object, or a string that is an element of an array.
    pub const JSON_KEY: u8 = 3;
    pub const JSON_VALUE: u8 = 4;
    /// A value with the keys that lead to it.
    pub const JSON_PATH: u8 = 5;
    /// The digest of one of the others follows, whose kind comes after it.
    pub const DIGEST: u8 = 6;
    pub const TRIGRAM: u8 = 7;
}

/// How the values of a column become keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyClass {
    /// The whole value: of hash indexes.
    Whole,
    /// `array_ops`.
    Elements,
    /// `jsonb_ops`.
    Json,
    /// `jsonb_path_ops`.
    JsonPaths,
    /// `gin_trgm_ops`.
    Trigrams,
}

/// Conditions that an inverted index serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    Equal,
    Contains,
    ContainedBy,
    Overlaps,
    /// `?`, `?|` and `?&` of `jsonb`.
    Exists,
    ExistsAny,
    ExistsAll,
    /// LIKE and ILIKE.
    Like {
        escape: Option<char>,
        fold_case: bool,
    },
}

impl Strategy {
    pub fn symbol(self) -> &'static str {
        match self {
            Strategy::Equal => "=",
            Strategy::Contains => "@>",
            Strategy::ContainedBy => "<@",
            Strategy::Overlaps => "&&",
            Strategy::Exists => "?",
            Strategy::ExistsAny => "?|",
            Strategy::ExistsAll => "?&",
            Strategy::Like {
                fold_case: false, ..
            } => "~~",
            Strategy::Like { .. } => "~~*",
        }
    }
}

/// The keys of one column.
struct Keys {
    column: u8,
    found: Vec<Vec<u8>>,
}

impl Keys {
    fn of(column: usize) -> Keys {
        // An index has 32 columns at most.
        let column = column as u8;
        Keys {
            column,
            found: Vec::new(),
        }
    }

    fn add(&mut self, kind: u8, write: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let mut key = vec![self.column, kind];
        write(&mut key);
        if key.len() > LONGEST {
            let digest = Sha::Sha256.of(&key[2..]);
            key.truncate(1);
            key.extend_from_slice(&[kind::DIGEST, kind]);
            key.extend_from_slice(&digest[..DIGEST]);
        }
        self.found.push(key);
        if self.found.len().is_multiple_of(CANCEL_CHECK_KEYS) {
            wait::check_cancel().map_err(|_| cancelled())?;
        }
        Ok(())
    }

    fn value(&mut self, ty: ColType, value: DatumRef<'_>) -> Result<()> {
        self.add(kind::VALUE, |out| push_column(out, ty, Order::ASC, value))
    }

    fn elements(&mut self, array: ArrayRef<'_>) -> Result<()> {
        array.values().try_for_each(|element| match element {
            DatumRef::Null => self.add(kind::NULL, |_| {}),
            value => self.value(array.element(), value),
        })
    }

    fn json_key(&mut self, key: &str) -> Result<()> {
        self.add(kind::JSON_KEY, |out| push_text(out, key))
    }

    /// All keys and values of a document. `is_element`: it is an element of an array, or a scalar
    /// that is the whole document, which is taken for an array of itself.
    fn json(&mut self, document: JsonRef<'_>, is_element: bool) -> Result<()> {
        match document.view() {
            View::Array(items) => items.iter().try_for_each(|item| self.json(item, true)),
            View::Object(pairs) => pairs.iter().try_for_each(|(key, value)| {
                self.json_key(key)?;
                self.json(value, false)
            }),
            View::String(s) if is_element => self.json_key(s),
            _ => self.add(kind::JSON_VALUE, |out| push_json(out, document)),
        }
    }

    /// All values of a document with the keys that lead to them ([`path_below`]). That a value is
    /// in an array is no part of its path.
    fn json_paths(&mut self, document: JsonRef<'_>, path: &[u8]) -> Result<()> {
        match document.view() {
            View::Array(items) => items
                .iter()
                .try_for_each(|item| self.json_paths(item, path)),
            View::Object(pairs) => pairs
                .iter()
                .try_for_each(|(key, value)| self.json_paths(value, &path_below(path, key))),
            _ => self.add(kind::JSON_PATH, |out| {
                out.push(path.len() as u8);
                out.extend_from_slice(path);
                push_json(out, document);
            }),
        }
    }

    fn trigrams(&mut self, trigrams: &[Trigram]) -> Result<()> {
        trigrams.iter().try_for_each(|trigram| {
            let codes = trigram.iter().map(|c| u32::from(*c).to_be_bytes());
            self.add(kind::TRIGRAM, |out| codes.for_each(|c| out.extend(c)))
        })
    }

    /// Those of all of these.
    fn all(self) -> Wanted {
        match self.found.is_empty() {
            true => Wanted::Unknown,
            false => Wanted::All(self.found.into_iter().map(Wanted::Key).collect()),
        }
    }

    /// Those of any of these.
    fn any(self) -> Wanted {
        Wanted::Any(self.found.into_iter().map(Wanted::Key).collect())
    }
}

/// The path of what a key of an object leads to; `path` is that of the object. A digest stands for
/// a path of more than [`LONGEST`] bytes, so that the many values below a long one cost no more
/// than others.
fn path_below(path: &[u8], key: &str) -> Vec<u8> {
    let mut below = path.to_vec();
    push_text(&mut below, key);
    if below.len() > LONGEST {
        let digest = Sha::Sha256.of(&below);
        below.clear();
        below.extend_from_slice(&digest[..DIGEST]);
    }
    below
}

const _: () = assert!(LONGEST <= u8::MAX as usize && DIGEST <= LONGEST);

fn push_text(out: &mut Vec<u8>, text: &str) {
    push_column(out, ColType::Text, Order::ASC, DatumRef::Text(text));
}

fn push_json(out: &mut Vec<u8>, scalar: JsonRef<'_>) {
    push_column(out, ColType::Json, Order::ASC, DatumRef::Json(scalar));
}

impl KeyClass {
    /// Adds the keys of a value, which is not NULL, of a column of this type.
    fn keys(self, keys: &mut Keys, ty: ColType, value: DatumRef<'_>) -> Result<()> {
        match (self, value) {
            (KeyClass::Whole, value) => keys.value(ty, value),
            (KeyClass::Elements, DatumRef::Array(array)) if array.count() == 0 => {
                keys.add(kind::EMPTY, |_| {})
            }
            (KeyClass::Elements, DatumRef::Array(array)) => keys.elements(array),
            (KeyClass::Json, DatumRef::Json(document)) => keys.json(document, true),
            (KeyClass::JsonPaths, DatumRef::Json(document)) => keys.json_paths(document, &[]),
            (KeyClass::Trigrams, DatumRef::Text(text)) => keys.trigrams(&trigrams::of_text(text)),
            (class, other) => Err(unexpected(class, other)),
        }
    }

    /// Whether the class serves a condition.
    pub fn serves(self, strategy: Strategy) -> bool {
        use Strategy::{ContainedBy, Contains, Equal, Exists, ExistsAll, ExistsAny, Overlaps};
        match self {
            KeyClass::Whole => strategy == Equal,
            KeyClass::Elements => matches!(strategy, Equal | Contains | ContainedBy | Overlaps),
            KeyClass::Json => matches!(strategy, Contains | Exists | ExistsAny | ExistsAll),
            KeyClass::JsonPaths => strategy == Contains,
            KeyClass::Trigrams => matches!(strategy, Equal | Strategy::Like { .. }),
        }
    }

    /// The rows among which are all that meet the condition with this value, which is not NULL.
    /// `ty` is the type of the column.
    pub fn wanted(
        self,
        column: usize,
        ty: ColType,
        strategy: Strategy,
        value: DatumRef<'_>,
    ) -> Result<Wanted> {
        let mut keys = Keys::of(column);
        match (strategy, value) {
            (Strategy::Equal, value) => {
                self.keys(&mut keys, ty, value)?;
                Ok(keys.all())
            }
            (Strategy::Contains, DatumRef::Array(array)) => {
                // Nothing contains NULL.
                if array.values().any(|v| v.is_null()) {
                    return Ok(Wanted::Any(Vec::new()));
                }
                keys.elements(array)?;
                Ok(keys.all())
            }
            (Strategy::Contains, value) => {
                self.keys(&mut keys, ty, value)?;
                Ok(keys.all())
            }
            (Strategy::Overlaps | Strategy::ContainedBy, DatumRef::Array(array)) => {
                let mut known = array.values().filter(|v| !v.is_null());
                known.try_for_each(|v| keys.value(array.element(), v))?;
                if strategy == Strategy::ContainedBy {
                    keys.add(kind::EMPTY, |_| {})?;
                }
                Ok(keys.any())
            }
            (Strategy::Like { escape, .. }, DatumRef::Text(pattern)) => {
                keys.trigrams(&trigrams::of_pattern(pattern, escape))?;
                Ok(keys.all())
            }
            (Strategy::Exists, DatumRef::Text(key)) => {
                keys.json_key(key)?;
                Ok(keys.all())
            }
            (Strategy::ExistsAny | Strategy::ExistsAll, DatumRef::Array(array)) => {
                for key in array.values() {
                    match key {
                        DatumRef::Null => {}
                        DatumRef::Text(key) => keys.json_key(key)?,
                        other => return Err(unexpected(self, other)),
                    }
                }
                Ok(match strategy {
                    Strategy::ExistsAny => keys.any(),
                    _ => keys.all(),
                })
            }
            (_, other) => Err(unexpected(self, other)),
        }
    }
}

fn unexpected(class: KeyClass, value: DatumRef<'_>) -> Error {
    Error::internal(format!("{class:?} of {value:?}"))
}

/// The keys of an index, bound to the columns of its table.
#[derive(Debug)]
pub struct Inverted {
    pub values: Arc<IndexKeys>,
    pub classes: Vec<KeyClass>,
}

impl Inverted {
    /// The keys of a row in rising order, each once.
    pub fn of(&self, row: &[DatumRef<'_>]) -> Result<Vec<Vec<u8>>> {
        let Some(values) = self.values.of(row)? else {
            return Ok(Vec::new());
        };
        let mut all = Vec::new();
        let types = self.values.types().iter();
        for (at, ((value, class), ty)) in values.iter().zip(&self.classes).zip(types).enumerate() {
            if !value.is_null() {
                let mut keys = Keys::of(at);
                class.keys(&mut keys, *ty, value.borrow())?;
                all.append(&mut keys.found);
            }
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }
}

impl InvertedKeys for Inverted {
    fn keys(&self, row: &[DatumRef<'_>]) -> std::result::Result<Vec<Vec<u8>>, ComputeError> {
        self.of(row).map_err(|e| Box::new(e) as ComputeError)
    }

    fn uses(&self, column: usize) -> bool {
        self.values.uses(column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::array::ArrayFunc;
    use crate::expr::func::{NoCalls, PureFunc};
    use crate::expr::json::JsonFunc;
    use crate::expr::{Env, Expr, Func};
    use crate::pgtype::json::jsonb_in;
    use block::array::Array;
    use block::value::Datum;
    use seam::Rng;

    fn keys_of(class: KeyClass, ty: ColType, value: &Datum) -> Vec<Vec<u8>> {
        let mut keys = Keys::of(3);
        class.keys(&mut keys, ty, value.borrow()).unwrap();
        keys.found
    }

    /// A name that makes a path longer than it is kept.
    fn long_name() -> String {
        format!("\"{}\"", "n".repeat(40))
    }

    fn has(keys: &[Vec<u8>], wanted: &Wanted) -> bool {
        match wanted {
            Wanted::Unknown => true,
            Wanted::Key(key) => keys.contains(key),
            Wanted::All(parts) => parts.iter().all(|part| has(keys, part)),
            Wanted::Any(parts) => parts.iter().any(|part| has(keys, part)),
        }
    }

    fn holds(func: PureFunc, left: &Datum, right: &Datum) -> bool {
        let args = vec![Expr::Const(left.clone()), Expr::Const(right.clone())];
        let call = Expr::Call(Func::Pure(func), args);
        let env = Env {
            row: &[],
            params: &[],
        };
        let value = call.eval(&env, &mut NoCalls::default()).unwrap();
        value.into_datum() == Datum::Bool(true)
    }

    fn array(rng: &mut Rng) -> Datum {
        let element = |rng: &mut Rng| match rng.below(6) {
            0 => Datum::Null,
            n => Datum::Int4(n as i32),
        };
        let count = rng.below(4);
        let values: Vec<Datum> = (0..count).map(|_| element(rng)).collect();
        Datum::Array(Array::of(ColType::Int4, &values))
    }

    fn document(rng: &mut Rng, depth: u64) -> String {
        let long = long_name();
        let names = ["\"a\"", &long, "\"\""];
        match rng.below(if depth == 0 { 4 } else { 7 }) {
            0 => "null".into(),
            1 => ["1", "1.00", "2", "true", "false"][rng.below(5) as usize].into(),
            2 | 3 => names[rng.below(3) as usize].into(),
            4 | 5 => {
                let count = rng.below(4);
                let items: Vec<String> = (0..count).map(|_| document(rng, depth - 1)).collect();
                format!("[{}]", items.join(","))
            }
            _ => {
                let names = &names[..rng.below(4) as usize];
                let pair = |name: &&str| format!("{name}:{}", document(rng, depth - 1));
                let pairs: Vec<String> = names.iter().map(pair).collect();
                format!("{{{}}}", pairs.join(","))
            }
        }
    }

    #[test]
    fn an_array_that_meets_a_condition_has_the_keys_that_it_asks_for() {
        let mut rng = Rng(7);
        let conditions = [
            (ArrayFunc::Contains, Strategy::Contains),
            (ArrayFunc::ContainedBy, Strategy::ContainedBy),
            (ArrayFunc::Overlaps, Strategy::Overlaps),
        ];
        let mut met = [0; 4];
        for _ in 0..20_000 {
            let (row, value) = (array(&mut rng), array(&mut rng));
            let keys = keys_of(KeyClass::Elements, ColType::Array, &row);
            let wanted = |strategy| {
                let class = KeyClass::Elements;
                class
                    .wanted(3, ColType::Array, strategy, value.borrow())
                    .unwrap()
            };
            for (at, (func, strategy)) in conditions.iter().enumerate() {
                if holds(PureFunc::Array(*func), &row, &value) {
                    met[at] += 1;
                    assert!(
                        has(&keys, &wanted(*strategy)),
                        "{row:?} {strategy:?} {value:?}"
                    );
                }
            }
            if row == value {
                met[3] += 1;
                assert!(has(&keys, &wanted(Strategy::Equal)), "{row:?}");
            }
        }
        assert!(met.iter().all(|n| *n > 100), "{met:?}");
    }

    #[test]
    fn a_document_that_meets_a_condition_has_the_keys_that_it_asks_for() {
        let mut rng = Rng(11);
        let mut met = [0; 2];
        for _ in 0..20_000 {
            let row = jsonb_in(&document(&mut rng, 3)).unwrap();
            let part = jsonb_in(&document(&mut rng, 2)).unwrap();
            let name = ["a", long_name().trim_matches('"'), ""][rng.below(3) as usize].to_string();
            let name = Datum::Text(name);
            for class in [KeyClass::Json, KeyClass::JsonPaths] {
                let keys = keys_of(class, ColType::Json, &row);
                let wanted = class.wanted(3, ColType::Json, Strategy::Contains, part.borrow());
                if holds(PureFunc::Json(JsonFunc::Contains), &row, &part) {
                    met[0] += 1;
                    assert!(has(&keys, &wanted.unwrap()), "{class:?} {row:?} {part:?}");
                }
            }
            if holds(PureFunc::Json(JsonFunc::Exists), &row, &name) {
                met[1] += 1;
                let keys = keys_of(KeyClass::Json, ColType::Json, &row);
                let wanted =
                    KeyClass::Json.wanted(3, ColType::Json, Strategy::Exists, name.borrow());
                assert!(has(&keys, &wanted.unwrap()), "{row:?} {name:?}");
            }
        }
        assert!(met.iter().all(|n| *n > 100), "{met:?}");
    }

    /// Else each value below a long path would cost as much as the path is long.
    #[test]
    fn a_path_is_never_long() {
        let long = "k".repeat(1000);
        let (mut path, mut all) = (Vec::new(), Vec::new());
        for key in ["a", &long, "b", "", "c", &long, "d"] {
            path = path_below(&path, key);
            assert!(path.len() <= LONGEST);
            all.push(path.clone());
        }
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 7, "each path is another");
        let under_long = path_below(&path_below(&[], &long), "x");
        let under_other = path_below(&path_below(&[], &long[1..]), "x");
        assert_ne!(under_long, under_other);
    }

    #[test]
    fn no_key_is_the_beginning_of_another() {
        let mut rng = Rng(13);
        let mut all = Vec::new();
        for _ in 0..300 {
            let value = jsonb_in(&document(&mut rng, 3)).unwrap();
            for class in [KeyClass::Json, KeyClass::JsonPaths, KeyClass::Whole] {
                all.extend(keys_of(class, ColType::Json, &value));
            }
        }
        let long = Datum::Text("x".repeat(5000));
        all.extend(keys_of(KeyClass::Whole, ColType::Text, &long));
        all.sort();
        all.dedup();
        for pair in all.windows(2) {
            assert!(!pair[1].starts_with(&pair[0]), "{pair:?}");
        }
        assert!(all.iter().all(|key| key.len() <= LONGEST));
    }
}
