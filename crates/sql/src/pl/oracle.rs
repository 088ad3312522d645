//! What bodies in Oracle's words ask of the last statement, of cursors and of errors.
//!
//! **Invariant.** Each such name is a variable with a slot of its own, which is set when what it
//! tells of has happened: a piece of SQL sees it as any other variable.

use ::block::value::Datum;
use plpgsql::tree::{CURSOR_ATTRIBUTES, Condition};

use super::block::Interpreter;
use super::condition;
use super::seen::{Found, Level};
use super::value::{Scalar, Slot};
use crate::error::{Error, Result};
use crate::error_numbers;
use crate::types::SqlType;

/// The names that every body has, in the order of their slots.
pub const NAMES: [&str; 6] = [
    "sqlcode",
    "sqlerrm",
    "sql%found",
    "sql%notfound",
    "sql%isopen",
    "sql%rowcount",
];

/// What a statement or a cursor has come to.
#[derive(Clone, Copy, Default)]
pub struct Asked {
    pub found: Option<bool>,
    pub open: bool,
    pub rows: Option<u64>,
}

impl Asked {
    /// Of a cursor that no row has been fetched from.
    pub const OPENED: Asked = Asked {
        found: None,
        open: true,
        rows: Some(0),
    };

    /// In the order of [`CURSOR_ATTRIBUTES`].
    fn values(self) -> [(SqlType, Datum); CURSOR_ATTRIBUTES.len()] {
        let truth = |b: Option<bool>| (SqlType::Bool, b.map_or(Datum::Null, Datum::Bool));
        let rows = self.rows.map_or(Datum::Null, |n| Datum::Int8(n as i64));
        [
            truth(self.found),
            truth(self.found.map(|found| !found)),
            truth(Some(self.open)),
            (SqlType::Int8, rows),
        ]
    }
}

impl<'b> Interpreter<'b, '_> {
    /// Gives the body the names that every body has.
    pub fn push_told(&mut self) {
        let first = self.slots.len();
        let fine = "ORA-0000: normal, successful completion".to_string();
        let values = [
            (SqlType::Int4, Datum::Int4(0)),
            (SqlType::Text, Datum::Text(fine)),
        ];
        let all = values.into_iter().chain(Asked::default().values());
        self.slots
            .extend(all.map(|(ty, value)| Slot::Scalar(Scalar::new(ty, -1, value))));
        let names = NAMES.into_iter().zip(first..).collect();
        self.levels.insert(0, Level { label: None, names });
        self.told = Some(first + 2);
    }

    /// A statement has read or written so many rows.
    pub fn tell_rows(&mut self, rows: u64) {
        let Some(first) = self.told else { return };
        self.tell(
            first,
            Asked {
                found: Some(rows > 0),
                open: false,
                rows: Some(rows),
            },
        );
    }

    fn tell(&mut self, first: usize, asked: Asked) {
        for (slot, (_, value)) in self.slots[first..].iter_mut().zip(asked.values()) {
            if let Slot::Scalar(s) = slot {
                s.value = value;
            }
        }
    }

    /// Gives a new cursor variable the names that it is asked by.
    pub fn push_attributes(&mut self, names: &'b [String]) {
        if names.is_empty() {
            return;
        }
        let first = self.slots.len();
        let values = Asked::default().values();
        self.slots
            .extend(values.map(|(ty, value)| Slot::Scalar(Scalar::new(ty, -1, value))));
        if let Some(level) = self.levels.last_mut() {
            level
                .names
                .extend(names.iter().map(String::as_str).zip(first..));
        }
    }

    /// A cursor has been opened, fetched from or closed. That of a parameter is asked nothing.
    pub fn tell_cursor(&mut self, path: &[String], asked: Asked) {
        if let Some(first) = self.attributes(path) {
            self.tell(first, asked);
        }
    }

    /// A row was asked of a cursor.
    pub fn tell_fetched(&mut self, path: &[String], found: bool) {
        let Some(first) = self.attributes(path) else {
            return;
        };
        let before = match &self.slots[first + CURSOR_ATTRIBUTES.len() - 1] {
            Slot::Scalar(Scalar {
                value: Datum::Int8(n),
                ..
            }) => *n as u64,
            _ => 0,
        };
        let asked = Asked {
            found: Some(found),
            open: true,
            rows: Some(before + u64::from(found)),
        };
        self.tell(first, asked);
    }

    /// The slot of the first of a cursor's attributes.
    fn attributes(&self, path: &[String]) -> Option<usize> {
        if !self.code.oracle {
            return None;
        }
        let (cursor, before) = path.split_last()?;
        let mut path = before.to_vec();
        path.push(format!("{cursor}%{}", CURSOR_ATTRIBUTES[0]));
        match self.find(&path)? {
            Found::Slot(slot) => Some(slot),
            Found::Field(..) => None,
        }
    }

    /// Whether one of the conditions takes an error; `own` is the exception of this body that it
    /// is.
    pub fn takes(&self, conditions: &[Condition], error: &Error, own: Option<u32>) -> bool {
        conditions.iter().any(|c| match c {
            Condition::Own { id, .. } => own == Some(*id),
            Condition::Number { number, .. } => {
                error_numbers::number(error) == Some(*number)
                    || error_numbers::state_of(*number) == Some(error.sqlstate())
            }
            Condition::Name(_) | Condition::State(_) => condition::takes(c, error.sqlstate()),
        })
    }

    /// `SQLCODE` of an error that is handled.
    pub fn sqlcode(&self, error: &Error, own: Option<u32>) -> i32 {
        match own {
            Some(_) => 1,
            None => error_numbers::sqlcode(error),
        }
    }

    /// RAISE of an exception that the body declares. Outside of the body it is an error like any
    /// other.
    pub fn raise_own(&mut self, name: &str, id: u32) -> Error {
        self.raised = Some(id);
        let message = format!("ORA-06510: unhandled user-defined exception \"{name}\"");
        Error::new("P0001", message)
    }
}

/// RAISE of a name that stands for a number.
pub fn raise_number(name: &str, number: i32) -> Error {
    match error_numbers::state_of(number) {
        Some(state) => Error::new(state, name),
        None => Error::new("P0001", format!("ORA-{:05}: {name}", number.unsigned_abs())),
    }
}

/// The text of EXECUTE IMMEDIATE, whose parameters stand behind colons, as one with numbers.
pub fn numbered(text: String) -> Result<String> {
    plpgsql::numbered_parameters(&text)
        .map_err(|e| Error::new(e.sqlstate, e.message).in_statement(&text))
}
