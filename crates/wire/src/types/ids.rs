//! Numbers that are types of their own: of `block` and of `fusion`.

use crate::{Bad, Codec, Reader, Wire, Writer, fields, tagged};
use block::{Dba, FileId, InstanceId, LogPos, ObjectId, RowId, Scn, TxnId};
use fusion::{Bucket, Epoch, Granule, GroupNo, Incarnation, RequestId, Term, Turn};

/// Types of one number, any of which is possible.
macro_rules! any {
    ($($ty:ident),*) => {$(
        impl Wire for $ty {
            #[inline]
            fn put(&self, w: &mut Writer<'_>) {
                self.0.put(w);
            }
            #[inline]
            fn get(r: &mut Reader<'_>) -> Result<$ty, Bad> {
                r.get().map($ty)
            }
        }
    )*};
}
any!(
    Dba,
    RowId,
    LogPos,
    ObjectId,
    Epoch,
    Incarnation,
    RequestId,
    Granule
);

/// A number of 64 bits below 2^62. SCNs and numbers of groups are: status words need two bits.
pub struct Below62;

impl Codec<u64> for Below62 {
    #[inline]
    fn put(value: &u64, w: &mut Writer<'_>) {
        value.put(w);
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<u64, Bad> {
        match r.get()? {
            n if n < 1 << 62 => Ok(n),
            _ => Err(r.bad("an SCN or the number of a group is out of range")),
        }
    }
}

macro_rules! below_62 {
    ($($ty:ident),*) => {$(
        /// Below 2^62.
        impl Wire for $ty {
            #[inline]
            fn put(&self, w: &mut Writer<'_>) {
                Below62::put(&self.0, w);
            }
            #[inline]
            fn get(r: &mut Reader<'_>) -> Result<$ty, Bad> {
                Below62::get(r).map($ty)
            }
        }
    )*};
}
below_62!(Scn, GroupNo);

fn is_instance(n: u16) -> bool {
    (1..=FileId::MAX_INSTANCES).contains(&n)
}

/// One of the instances that there can be.
impl Wire for InstanceId {
    #[inline]
    fn put(&self, w: &mut Writer<'_>) {
        self.0.put(w);
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<InstanceId, Bad> {
        match r.get()? {
            n if is_instance(n) => Ok(InstanceId(n)),
            _ => Err(r.bad("there is no such instance")),
        }
    }
}

/// Of one of the instances that there can be.
impl Wire for TxnId {
    #[inline]
    fn put(&self, w: &mut Writer<'_>) {
        self.0.put(w);
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<TxnId, Bad> {
        match TxnId(r.get()?) {
            txn if is_instance(txn.instance().0) => Ok(txn),
            _ => Err(r.bad("there is no such transaction")),
        }
    }
}

/// [`Term::BY_HASH`], or that of an instance that there can be.
impl Wire for Term {
    #[inline]
    fn put(&self, w: &mut Writer<'_>) {
        self.number.put(w);
        self.master.0.put(w);
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Term, Bad> {
        let number = r.get()?;
        let master = InstanceId(r.get()?);
        let term = Term { number, master };
        match is_instance(master.0) || term.is_by_hash() {
            true => Ok(term),
            false => Err(r.bad("there is no such term")),
        }
    }
}

fields! { impl Turn { epoch, term, number } }

tagged! { impl Bucket: u8 {
    Hash = 0 (number),
    Granule = 1 (granule, term),
} }
