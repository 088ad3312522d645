//! Which collation an expression has: that of its parts, as far as they agree.
//!
//! While the parts of an expression are bound, what they have is collected by their thread, from
//! one level of the expression to the next. A query within an expression is on a level of its own.

use std::cell::Cell;

use super::Collation;
use crate::error::{Error, Result};

/// The collation of an expression, and how it has come by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Derived {
    collation: Collation,
    strength: Strength,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Strength {
    /// That of a column, or the default one.
    Implicit,
    /// Its parts have several, of which the second is this one.
    Conflict(Collation),
    /// By a COLLATE clause.
    Explicit,
}

impl Default for Derived {
    fn default() -> Derived {
        Derived::implicit(Collation::DEFAULT)
    }
}

impl Derived {
    pub fn implicit(collation: Collation) -> Derived {
        Derived {
            collation,
            strength: Strength::Implicit,
        }
    }

    pub fn explicit(collation: Collation) -> Derived {
        Derived {
            collation,
            strength: Strength::Explicit,
        }
    }

    /// What an expression of two parts has.
    pub fn and(self, other: Derived) -> Result<Derived> {
        use Strength::{Conflict, Explicit, Implicit};
        Ok(match (self.strength, other.strength) {
            (Explicit, Explicit) if self.collation != other.collation => {
                let message = format!(
                    "collation mismatch between explicit collations \"{}\" and \"{}\"",
                    self.collation.name(),
                    other.collation.name()
                );
                return Err(Error::new("42P21", message));
            }
            (Explicit, _) | (Conflict(_), Conflict(_) | Implicit) => self,
            (_, Explicit) | (Implicit, Conflict(_)) => other,
            (Implicit, Implicit) if self.collation == Collation::DEFAULT => other,
            (Implicit, Implicit)
                if other.collation == Collation::DEFAULT || other.collation == self.collation =>
            {
                self
            }
            (Implicit, Implicit) => Derived {
                strength: Conflict(other.collation),
                ..self
            },
        })
    }

    /// The collation for what needs one.
    pub fn decided(self, what: &str) -> Result<Collation> {
        match self.strength {
            Strength::Conflict(_) => {
                let message = format!("could not determine which collation to use for {what}");
                Err(Error::new("42P22", message)
                    .hint("Use the COLLATE clause to set the collation explicitly."))
            }
            _ => Ok(self.collation),
        }
    }

    /// The collation of a column of a set operation, whose parts must agree.
    pub fn agreed(self) -> Result<Collation> {
        match self.strength {
            Strength::Conflict(other) => {
                let message = format!(
                    "collation mismatch between implicit collations \"{}\" and \"{}\"",
                    self.collation.name(),
                    other.name()
                );
                Err(Error::new("42P21", message).hint(
                    "You can choose the collation by applying the COLLATE clause to one or both \
                     expressions.",
                ))
            }
            _ => Ok(self.collation),
        }
    }

    /// What a column has that is made of the expression: it is no longer explicit.
    pub fn of_column(self) -> Derived {
        match self.strength {
            Strength::Conflict(_) => self,
            _ => Derived::implicit(self.collation),
        }
    }

    /// The collation of a stored column; `None` if it is the default one.
    pub fn stored(self, column: &str, ty: &str) -> Result<Option<Collation>> {
        match self.strength {
            Strength::Conflict(_) => {
                let message = format!(
                    "no collation was derived for column \"{column}\" with collatable type {ty}"
                );
                Err(Error::new("42P22", message)
                    .hint("Use the COLLATE clause to set the collation explicitly."))
            }
            _ => Ok(Some(self.collation).filter(|c| *c != Collation::DEFAULT)),
        }
    }
}

thread_local! {
    /// What the parts of the expression that is being bound have so far; `None`: none is.
    static PARTS: Cell<Option<Parts>> = const { Cell::new(None) };
}

#[derive(Clone, Copy, Default)]
struct Parts(Option<Derived>);

/// Puts back what was collected around.
struct Around(Option<Parts>);

impl Drop for Around {
    fn drop(&mut self) {
        PARTS.set(self.0);
    }
}

/// Binds an expression; `of` tells, of what was bound, what it has by itself, given what its parts
/// have: `None` if it has none. That is one of the parts of the expression around.
pub fn collected<T>(
    bind: impl FnOnce() -> Result<T>,
    of: impl FnOnce(&mut T, Derived) -> Option<Derived>,
) -> Result<T> {
    let mut around = Around(PARTS.replace(Some(Parts::default())));
    let mut bound = bind()?;
    let parts = PARTS.get().and_then(|parts| parts.0).unwrap_or_default();
    if let (Some(own), Some(Parts(others))) = (of(&mut bound, parts), &mut around.0) {
        *others = Some(match *others {
            Some(others) => others.and(own)?,
            None => own,
        });
    }
    Ok(bound)
}

/// Binds what stands within an expression and is no part of it: a query, or the keys of an order.
pub fn apart<T>(bind: impl FnOnce() -> Result<T>) -> Result<T> {
    let around = Around(PARTS.take());
    let bound = bind();
    drop(around);
    bound
}
