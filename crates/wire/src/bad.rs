//! Why bytes are no message.

use std::fmt;

/// Why bytes from another instance are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bad {
    what: &'static str,
    at: Option<usize>,
    /// Kind of message, or type, and the field of it.
    field: Option<(&'static str, &'static str)>,
}

impl Bad {
    /// A refusal of what was decoded, which has no place in the bytes.
    #[cold]
    pub fn because(what: &'static str) -> Bad {
        let (at, field) = (None, None);
        Bad { what, at, field }
    }

    #[cold]
    pub(crate) fn at(what: &'static str, at: usize) -> Bad {
        let (at, field) = (Some(at), None);
        Bad { what, at, field }
    }

    /// Names the field that could not be read. The name given last, that of the outermost field,
    /// counts.
    #[cold]
    #[doc(hidden)]
    pub fn in_field(self, of: &'static str, field: &'static str) -> Bad {
        let field = Some((of, field));
        Bad { field, ..self }
    }

    /// What is wrong.
    pub fn what(&self) -> &'static str {
        self.what
    }

    /// How many bytes were read when it was found.
    pub fn offset(&self) -> Option<usize> {
        self.at
    }

    /// Kind of message, or type, and the field of it.
    pub fn field(&self) -> Option<(&'static str, &'static str)> {
        self.field
    }
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        if let Some(at) = self.at {
            write!(f, ", at byte {at}")?;
        }
        if let Some((of, field)) = self.field {
            write!(f, ", in {of}.{field}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Bad {}
