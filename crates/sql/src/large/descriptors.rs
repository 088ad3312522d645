//! What a session has open.

use std::ops::Range;

use crate::error::{Error, Result};

/// Descriptors that a session may have open at once.
const MAX_OPEN: usize = 10_000;

/// An object that is open.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    pub oid: u32,
    pub at: u64,
    pub writes: bool,
    /// The session's mark when it was opened: it is lost with what began then.
    mark: u64,
}

/// The descriptors of a session, by their numbers.
#[derive(Default)]
pub struct Descriptors {
    open: Vec<Option<Open>>,
}

impl Descriptors {
    pub fn add(&mut self, oid: u32, writes: bool, mark: u64) -> Result<i32> {
        let opened = Open {
            oid,
            at: 0,
            writes,
            mark,
        };
        let free = self.open.iter().position(Option::is_none);
        let number = free.unwrap_or(self.open.len());
        match self.open.get_mut(number) {
            Some(place) => *place = Some(opened),
            None if number < MAX_OPEN => self.open.push(Some(opened)),
            None => {
                let message = format!("a session can have {MAX_OPEN} large objects open");
                return Err(Error::new("54000", message));
            }
        }
        Ok(number as i32)
    }

    /// The place of a descriptor.
    fn place(&mut self, number: i32) -> Result<&mut Option<Open>> {
        let at = usize::try_from(number).ok();
        let place = at.and_then(|at| self.open.get_mut(at));
        place.filter(|place| place.is_some()).ok_or_else(|| {
            Error::new(
                "42704",
                format!("invalid large-object descriptor: {number}"),
            )
        })
    }

    pub fn get(&mut self, number: i32) -> Result<&mut Open> {
        let none = || Error::internal("a descriptor that is not open");
        self.place(number)?.as_mut().ok_or_else(none)
    }

    /// One that is open for writing.
    pub fn writing(&mut self, number: i32) -> Result<Open> {
        let open = *self.get(number)?;
        match open.writes {
            true => Ok(open),
            false => {
                let message =
                    format!("large object descriptor {number} was not opened for writing");
                Err(Error::new("55000", message))
            }
        }
    }

    pub fn close(&mut self, number: i32) -> Result<()> {
        *self.place(number)? = None;
        Ok(())
    }

    /// Closes those of an object.
    pub fn close_object(&mut self, oid: u32) {
        self.retain(|open| open.oid != oid);
    }

    /// Those opened at these marks end.
    pub fn forget(&mut self, lost: &Range<u64>) {
        self.retain(|open| !lost.contains(&open.mark));
    }

    pub fn clear(&mut self) {
        self.open.clear();
    }

    fn retain(&mut self, stays: impl Fn(&Open) -> bool) {
        for place in &mut self.open {
            if place.as_ref().is_some_and(|open| !stays(open)) {
                *place = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_ends_with_the_savepoint_after_which_it_was_opened() {
        let mut all = Descriptors::default();
        assert_eq!(all.add(1, false, 3).unwrap(), 0);
        assert_eq!(all.add(2, true, 5).unwrap(), 1);
        all.forget(&(4..6));
        assert_eq!(all.get(0).unwrap().oid, 1);
        assert_eq!(all.get(1).unwrap_err().sqlstate(), "42704");
        assert_eq!(all.add(3, true, 6).unwrap(), 1);
        assert_eq!(all.writing(0).unwrap_err().sqlstate(), "55000");
        all.close_object(3);
        assert!(all.get(1).is_err());
        assert!(all.close(1).is_err());
        assert!(all.get(-1).is_err());
    }
}
