//! What `json_agg`, `json_object_agg` and their kin of jsonb keep of a group. The values come as
//! json or jsonb already.

use block::json::Node;
use block::value::{Datum, DatumRef};

use crate::error::{Error, Result};
use crate::pgtype::json;

/// The longest text that PostgreSQL makes.
const MAX_TEXT: usize = 0x3fff_ffff;

#[derive(Clone, Debug)]
pub enum JsonState {
    /// Text without its last bracket; empty before the first value.
    Text {
        so_far: String,
        object: bool,
        lines: bool,
    },
    Array {
        items: Vec<Node>,
        bytes: usize,
    },
    Object {
        pairs: Vec<(String, Node)>,
        bytes: usize,
    },
}

impl JsonState {
    pub fn array(binary: bool, lines: bool) -> JsonState {
        match binary {
            true => JsonState::Array {
                items: Vec::new(),
                bytes: 0,
            },
            false => JsonState::Text {
                so_far: String::new(),
                object: false,
                lines,
            },
        }
    }

    pub fn object(binary: bool) -> JsonState {
        match binary {
            true => JsonState::Object {
                pairs: Vec::new(),
                bytes: 0,
            },
            false => JsonState::Text {
                so_far: String::new(),
                object: true,
                lines: false,
            },
        }
    }

    pub fn add(&mut self, values: &[DatumRef<'_>]) -> Result<()> {
        let (key, value) = match values {
            [value] => (None, *value),
            [DatumRef::Text(key), value] => (Some(*key), *value),
            _ => return Err(Error::new("22023", "field name must not be null")),
        };
        match (&mut *self, key, value) {
            (
                JsonState::Text {
                    so_far,
                    object,
                    lines,
                },
                key,
                DatumRef::Text(value),
            ) => {
                so_far.push_str(match (so_far.is_empty(), *object, *lines) {
                    (true, false, _) => "[",
                    (true, true, _) => "{ ",
                    (false, _, false) => ", ",
                    (false, _, true) => ", \n ",
                });
                if let Some(key) = key {
                    let mut name = Vec::new();
                    json::write_string(key, &mut name);
                    let name = String::from_utf8(name);
                    so_far.push_str(&name.map_err(|_| Error::internal("a key not in UTF-8"))?);
                    so_far.push_str(" : ");
                }
                if so_far.len() + value.len() > MAX_TEXT {
                    return Err(Error::new("54000", "out of memory"));
                }
                so_far.push_str(value);
            }
            (JsonState::Array { items, bytes }, None, DatumRef::Json(value)) => {
                *bytes += size_of::<Node>() + value.as_bytes().len();
                items.push(Node::Whole(value.to_json()));
            }
            (JsonState::Object { pairs, bytes }, Some(key), DatumRef::Json(value)) => {
                let size = key.len() + value.as_bytes().len();
                *bytes += size_of::<(String, Node)>() + size;
                pairs.push((key.to_string(), Node::Whole(value.to_json())));
            }
            (state, ..) => return Err(Error::internal(format!("{values:?} for {state:?}"))),
        }
        if self.heap_size() > MAX_TEXT {
            return Err(Error::new("54000", "a jsonb value of too many elements"));
        }
        Ok(())
    }

    pub fn result(&self) -> Result<Datum> {
        match self {
            JsonState::Text { so_far, .. } if so_far.is_empty() => Ok(Datum::Null),
            JsonState::Text { so_far, object, .. } => {
                let end = if *object { " }" } else { "]" };
                Ok(Datum::Text(format!("{so_far}{end}")))
            }
            JsonState::Array { items, .. } if items.is_empty() => Ok(Datum::Null),
            JsonState::Array { items, .. } => json::jsonb(&Node::Array(items.clone())),
            JsonState::Object { pairs, .. } if pairs.is_empty() => Ok(Datum::Null),
            JsonState::Object { pairs, .. } => json::jsonb(&Node::Object(pairs.clone())),
        }
    }

    pub fn heap_size(&self) -> usize {
        match self {
            JsonState::Text { so_far, .. } => so_far.len(),
            JsonState::Array { bytes, .. } | JsonState::Object { bytes, .. } => *bytes,
        }
    }
}
