//! Types of rows: those with a name, and what is known of records.
//!
//! A value says of each of its fields which type it has ([`block::composite`]), so it can be
//! written and compared whatever is known of it. Its type may know more: the names of the fields.
//! PostgreSQL's `record` is any row whose type has no name. Of a record that stands in a statement
//! the fields are known; where several meet, as in a UNION, they are not.
//!
//! **Invariant.** As for enums, a definition is never changed: another state of a type is another
//! definition of the same object id. They live as long as the process, each once.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use block::composite::FieldKind;
use block::value::ColType;
use parking_lot::Mutex;

use super::{SqlType, enums, own, ranges, storage_type};

/// PostgreSQL's number of the type `record`, and of its arrays.
pub const RECORD: u32 = 2249;
const RECORDS: u32 = 2287;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Field {
    pub name: String,
    /// What values of it are: no domain.
    pub ty: SqlType,
    pub typmod: i32,
    /// As the type has it: a domain, whose rules the values meet, or `ty`.
    pub declared: SqlType,
}

impl Field {
    /// A field that is declared as no domain.
    pub fn new(name: String, ty: SqlType, typmod: i32) -> Field {
        Field {
            name,
            ty,
            typmod,
            declared: ty,
        }
    }
}

/// One state of a type.
#[derive(Debug)]
pub struct CompositeDef {
    pub oid: u32,
    pub array_oid: u32,
    /// As messages have it, and its arrays.
    pub names: [String; 2],
    /// As the catalog has it, and its arrays.
    pub internal_names: [String; 2],
    /// None of a record whose fields are not known.
    pub fields: Option<Vec<Field>>,
}

/// The same state: of the same states of the fields' types, too.
impl PartialEq for CompositeDef {
    fn eq(&self, other: &CompositeDef) -> bool {
        let states = |a: &[Field], b: &[Field]| {
            let mut both = a.iter().zip(b);
            both.all(|(a, b)| a == b && a.declared.is_state(b.declared))
        };
        let known = match (&self.fields, &other.fields) {
            (Some(a), Some(b)) => a.len() == b.len() && states(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        known
            && self.oid == other.oid
            && self.array_oid == other.array_oid
            && self.names == other.names
            && self.internal_names == other.internal_names
    }
}

impl Eq for CompositeDef {}

impl Hash for CompositeDef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.oid, &self.fields).hash(state);
    }
}

/// A state of a type. Those of one object id are the same type; records are, if they have the same
/// fields.
#[derive(Clone, Copy)]
pub struct CompositeType(pub(super) &'static CompositeDef);

#[derive(Default)]
struct States {
    known: HashSet<&'static CompositeDef>,
    /// Those with names, the newest last.
    named: Vec<&'static CompositeDef>,
}

static STATES: LazyLock<Mutex<States>> = LazyLock::new(Mutex::default);

static ANY_RECORD: LazyLock<CompositeType> = LazyLock::new(|| CompositeType::record(None));

impl CompositeType {
    pub fn of(def: CompositeDef) -> CompositeType {
        let mut states = STATES.lock();
        if let Some(known) = states.known.get(&def) {
            return CompositeType(known);
        }
        let state: &'static CompositeDef = Box::leak(Box::new(def));
        states.known.insert(state);
        if state.oid != RECORD {
            states.named.push(state);
        }
        CompositeType(state)
    }

    fn record(fields: Option<Vec<Field>>) -> CompositeType {
        let name = ["record".to_string(), "record[]".to_string()];
        CompositeType::of(CompositeDef {
            oid: RECORD,
            array_oid: RECORDS,
            internal_names: [name[0].clone(), "_record".to_string()],
            names: name,
            fields,
        })
    }

    /// A record of these fields.
    pub fn of_fields(fields: Vec<Field>) -> CompositeType {
        CompositeType::record(Some(fields))
    }

    /// A record of which nothing is known.
    pub fn any() -> CompositeType {
        *ANY_RECORD
    }

    pub fn def(self) -> &'static CompositeDef {
        self.0
    }

    pub fn is_record(self) -> bool {
        self.0.oid == RECORD
    }

    /// The fields, as far as they are known.
    pub fn fields(self) -> Option<&'static [Field]> {
        self.0.fields.as_deref()
    }

    /// Whether it is the very same state.
    pub fn is_state(self, other: CompositeType) -> bool {
        std::ptr::eq(self.0, other.0)
    }

    /// What its values say of their fields.
    pub fn kinds(self) -> Vec<FieldKind> {
        let fields = self.fields().unwrap_or_default();
        fields.iter().map(|f| kind_of(f.ty)).collect()
    }

    /// The type of a field of a value, which has a number for it.
    pub fn field_type(self, at: usize, number: u32) -> Option<SqlType> {
        match self.fields().and_then(|fields| fields.get(at)) {
            Some(field) => Some(field.ty),
            None => type_of_number(number),
        }
    }

    /// The number that the binary form has for a field, of whose values that is the own number.
    pub fn sent_number(self, at: usize, number: u32) -> u32 {
        match self.fields().and_then(|fields| fields.get(at)) {
            Some(field) => field.declared.oid(),
            None => number,
        }
    }

    pub fn field_name(self, at: usize) -> String {
        match self.fields().and_then(|fields| fields.get(at)) {
            Some(field) => field.name.clone(),
            None => format!("f{}", at + 1),
        }
    }
}

/// What a value says of a field of a type.
pub fn kind_of(ty: SqlType) -> FieldKind {
    FieldKind {
        // A literal without a type is text, and of nothing else that has no storage are there rows.
        ty: storage_type(ty).unwrap_or(ColType::Text),
        number: ty.oid(),
    }
}

/// A type by the number that a field of a value has: of a type that a user made any state of it.
fn type_of_number(number: u32) -> Option<SqlType> {
    if let Some(ty) = SqlType::from_oid(number) {
        return Some(ty);
    }
    let of_values = enums::state_of(number).or_else(|| own::state_of(number));
    if let Some(found) = of_values.or_else(|| ranges::state_of(number)) {
        return Some(found);
    }
    let states = STATES.lock();
    let mut named = states.named.iter().rev();
    let found = named.find(|s| s.oid == number || s.array_oid == number)?;
    let ty = SqlType::Composite(CompositeType(found));
    match found.oid == number {
        true => Some(ty),
        false => ty.array(),
    }
}

impl PartialEq for CompositeType {
    fn eq(&self, other: &CompositeType) -> bool {
        self.0.oid == other.0.oid && (!self.is_record() || self.0.fields == other.0.fields)
    }
}

impl Eq for CompositeType {}

impl Hash for CompositeType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.oid.hash(state);
    }
}

impl fmt::Debug for CompositeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {}", self.0.names[0])
    }
}
