//! The functions that give documents as rows, told apart.

/// A function that gives rows of a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordFunction {
    pub binary: bool,
    /// Of an array of objects, a row each.
    pub set: bool,
    /// The columns are those of a value's type, which is the first argument.
    pub populate: bool,
}

/// The function of that name.
pub fn of_record(name: &str) -> Option<RecordFunction> {
    let (rest, binary) = match name.strip_prefix("json_") {
        Some(rest) => (rest, false),
        None => (name.strip_prefix("jsonb_")?, true),
    };
    let (set, populate) = match rest {
        "to_record" => (false, false),
        "to_recordset" => (true, false),
        "populate_record" => (false, true),
        "populate_recordset" => (true, true),
        _ => return None,
    };
    Some(RecordFunction {
        binary,
        set,
        populate,
    })
}

impl RecordFunction {
    pub fn name(self) -> &'static str {
        match (self.binary, self.populate, self.set) {
            (false, false, false) => "json_to_record",
            (false, false, true) => "json_to_recordset",
            (false, true, false) => "json_populate_record",
            (false, true, true) => "json_populate_recordset",
            (true, false, false) => "jsonb_to_record",
            (true, false, true) => "jsonb_to_recordset",
            (true, true, false) => "jsonb_populate_record",
            (true, true, true) => "jsonb_populate_recordset",
        }
    }
}
