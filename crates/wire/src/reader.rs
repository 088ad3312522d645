//! Taking values off the front of a message.

use crate::{Bad, Wire};

/// Takes values off the front of a message. Every failure is a [`Bad`], whatever the bytes are.
pub struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Reader<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader {
            rest: bytes,
            length: bytes.len(),
        }
    }

    /// Takes a value in the way of its type.
    #[inline]
    pub fn get<T: Wire>(&mut self) -> Result<T, Bad> {
        T::get(self)
    }

    /// Takes as many bytes.
    #[inline]
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(*head)
            }
            None => Err(self.bad("it is cut short")),
        }
    }

    /// Takes all that is left, which may be at most `limit` bytes.
    #[inline]
    pub fn rest(&mut self, limit: usize) -> Result<&'a [u8], Bad> {
        if self.rest.len() > limit {
            return Err(self.bad("more follows than may"));
        }
        Ok(std::mem::take(&mut self.rest))
    }

    /// Takes `n` values. No message has more values than bytes, so a larger `n` is refused before
    /// anything is allocated; and no more memory is allocated at first than the message has bytes.
    #[inline]
    pub fn values<T>(
        &mut self,
        n: usize,
        mut get: impl FnMut(&mut Self) -> Result<T, Bad>,
    ) -> Result<Vec<T>, Bad> {
        let left = self.rest.len();
        if n > left {
            return Err(self.bad("it counts more than follows"));
        }
        let mut values = Vec::with_capacity(n.min(left / size_of::<T>().max(1)));
        for _ in 0..n {
            values.push(get(self)?);
        }
        Ok(values)
    }

    /// How many bytes have been taken.
    #[inline]
    pub fn offset(&self) -> usize {
        self.length - self.rest.len()
    }

    /// Whether nothing is left.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// A refusal of what was taken last.
    #[cold]
    pub fn bad(&self, what: &'static str) -> Bad {
        Bad::at(what, self.offset())
    }

    /// Ends the message: nothing may be left.
    #[inline]
    pub fn finish(self) -> Result<(), Bad> {
        match self.is_at_end() {
            true => Ok(()),
            false => Err(self.bad("it is too long")),
        }
    }
}
