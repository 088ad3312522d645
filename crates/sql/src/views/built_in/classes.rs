//! Operator classes and families of access methods: the rows of `pg_opclass`, `pg_opfamily`,
//! `pg_amop` and `pg_amproc`. Methods of PostgreSQL that Braid lacks are not there, and `pg_amproc`
//! has the functions of B-trees only: those of others take what no statement can give.
//!
//! A family is shown if a class of it is, and a class if Braid has its type.

use std::sync::LazyLock;

use block::value::Datum;

use super::super::describe::{OWNER, PG_CATALOG};
use super::super::value::{bool, int2, oid, text};
use super::{Fields, lines, operators};
use crate::dict::Method;

/// A line of `opclasses.tsv`.
pub struct Class {
    pub oid: u32,
    pub method: Method,
    pub name: &'static str,
    family: u32,
    /// The number of the type that it is for.
    pub of: u32,
    pub default: bool,
    key: u32,
}

/// A line of `amops.tsv`: an operator of a family.
struct Member {
    oid: u32,
    family: u32,
    left: u32,
    right: u32,
    strategy: u16,
    purpose: &'static str,
    operator: u32,
}

/// A line of `amprocs.tsv`: what compares two values of a family.
pub struct Comparison {
    oid: u32,
    family: u32,
    pub left: u32,
    pub right: u32,
    number: u16,
    pub function: u32,
    pub function_name: &'static str,
    pub volatility: &'static str,
    pub arguments: Vec<u32>,
}

static CLASSES: LazyLock<Vec<Class>> = LazyLock::new(|| {
    lines(include_str!("opclasses.tsv"), |mut f: Fields<'static>| {
        Some(Class {
            oid: f.number()?,
            method: method(f.text()?)?,
            name: f.text()?,
            family: f.number()?,
            of: f.number()?,
            default: f.yes()?,
            key: f.number()?,
        })
    })
});

/// The families: number, method and name.
static FAMILIES: LazyLock<Vec<(u32, Method, &'static str)>> = LazyLock::new(|| {
    lines(include_str!("opfamilies.tsv"), |mut f: Fields<'static>| {
        Some((f.number()?, method(f.text()?)?, f.text()?))
    })
});

fn method(name: &str) -> Option<Method> {
    let all = [Method::Btree, Method::Hash, Method::Gin];
    all.into_iter().find(|m| m.name() == name)
}

/// The method of a family.
fn method_of(family: u32) -> Option<Method> {
    let found = FAMILIES.iter().find(|(number, ..)| *number == family);
    found.map(|(_, method, _)| *method)
}

static MEMBERS: LazyLock<Vec<Member>> = LazyLock::new(|| {
    lines(include_str!("amops.tsv"), |mut f: Fields<'static>| {
        Some(Member {
            oid: f.number()?,
            family: f.number()?,
            left: f.number()?,
            right: f.number()?,
            strategy: f.number()?,
            purpose: f.text()?,
            operator: f.number()?,
        })
    })
});

static COMPARISONS: LazyLock<Vec<Comparison>> = LazyLock::new(|| {
    lines(include_str!("amprocs.tsv"), |mut f: Fields<'static>| {
        Some(Comparison {
            oid: f.number()?,
            family: f.number()?,
            left: f.number()?,
            right: f.number()?,
            number: f.number()?,
            function: f.number()?,
            function_name: f.text()?,
            volatility: f.text()?,
            arguments: (f.text()?.split(' '))
                .map(|a| a.parse().ok())
                .collect::<Option<_>>()?,
        })
    })
});

/// Whether the type is there, and in the order of the class: that of the bytes of a row is another
/// than that of B-trees.
fn is_there(c: &Class) -> bool {
    super::type_of(c.of).is_some() && c.name != "record_image_ops"
}

/// The classes that there are.
pub fn all() -> impl Iterator<Item = &'static Class> {
    CLASSES.iter().filter(|c| is_there(c))
}

fn has_family(number: u32) -> bool {
    all().any(|c| c.family == number)
}

/// The rows of `pg_opclass`.
pub fn rows() -> Vec<Vec<Datum>> {
    let row = |c: &'static Class| {
        vec![
            oid(c.oid),
            oid(c.method.oid()),
            text(c.name),
            oid(PG_CATALOG),
            oid(OWNER),
            oid(c.family),
            oid(c.of),
            bool(c.default),
            oid(c.key),
        ]
    };
    all().map(row).collect()
}

/// The rows of `pg_opfamily`.
pub fn families() -> Vec<Vec<Datum>> {
    let row = |(number, method, name): &(u32, Method, &'static str)| {
        vec![
            oid(*number),
            oid(method.oid()),
            text(*name),
            oid(PG_CATALOG),
            oid(OWNER),
        ]
    };
    let there = FAMILIES.iter().filter(|(number, ..)| has_family(*number));
    there.map(row).collect()
}

/// The rows of `pg_amop`.
pub fn members() -> Vec<Vec<Datum>> {
    let there = |m: &&Member| has_family(m.family) && operators::by_number(m.operator).is_some();
    let row = |m: &Member| {
        let method = method_of(m.family).unwrap_or_default();
        vec![
            oid(m.oid),
            oid(m.family),
            oid(m.left),
            oid(m.right),
            int2(m.strategy),
            text(m.purpose),
            oid(m.operator),
            oid(method.oid()),
            oid(0),
        ]
    };
    MEMBERS.iter().filter(there).map(row).collect()
}

/// What compares values of types that Braid has.
pub fn comparisons() -> impl Iterator<Item = &'static Comparison> {
    let known = |number: u32| super::type_of(number).is_some();
    let there = move |c: &&Comparison| known(c.left) && known(c.right) && has_family(c.family);
    COMPARISONS.iter().filter(there)
}

/// The rows of `pg_amproc`: of each family the functions that compare.
pub fn procedures() -> Vec<Vec<Datum>> {
    let row = |c: &'static Comparison| {
        vec![
            oid(c.oid),
            oid(c.family),
            oid(c.left),
            oid(c.right),
            int2(c.number),
            oid(c.function),
        ]
    };
    comparisons().map(row).collect()
}
