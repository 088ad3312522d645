//! Numbers, flags, pairs.

use crate::{Bad, Reader, Wire, Writer};

macro_rules! numbers {
    ($($ty:ty),*) => {$(
        impl Wire for $ty {
            #[inline]
            fn put(&self, w: &mut Writer<'_>) {
                w.bytes(&self.to_le_bytes());
            }
            #[inline]
            fn get(r: &mut Reader<'_>) -> Result<$ty, Bad> {
                r.take().map(<$ty>::from_le_bytes)
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, i64);

/// One byte, 0 or 1.
impl Wire for bool {
    #[inline]
    fn put(&self, w: &mut Writer<'_>) {
        u8::from(*self).put(w);
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<bool, Bad> {
        match u8::get(r)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(r.bad("a flag is neither set nor clear")),
        }
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    #[inline]
    fn put(&self, w: &mut Writer<'_>) {
        self.0.put(w);
        self.1.put(w);
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<(A, B), Bad> {
        Ok((A::get(r)?, B::get(r)?))
    }
}

impl<T: Wire> Wire for [T; 2] {
    #[inline]
    fn put(&self, w: &mut Writer<'_>) {
        self.iter().for_each(|value| value.put(w));
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<[T; 2], Bad> {
        Ok([T::get(r)?, T::get(r)?])
    }
}
