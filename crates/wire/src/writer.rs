//! Appending values to a message.

use crate::Wire;

/// Appends values to a message: numbers little endian, without padding.
pub struct Writer<'a>(&'a mut Vec<u8>);

impl<'a> Writer<'a> {
    #[inline]
    pub fn new(out: &'a mut Vec<u8>) -> Writer<'a> {
        Writer(out)
    }

    /// Appends a value in the way of its type.
    #[inline]
    pub fn put<T: Wire>(&mut self, value: &T) {
        value.put(self);
    }

    /// Appends bytes as they are. Nothing says how many: they end where the message does.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}
