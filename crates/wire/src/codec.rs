//! How values stand in messages: the way of a type, and other ways for single fields.

use crate::{Bad, Reader, Writer};
use std::borrow::Cow;
use std::marker::PhantomData;

/// How values of a type stand in every message.
///
/// `get` takes exactly the bytes that `put` appends for what it returns, so that a message has one
/// form in bytes; it refuses what `put` never says.
pub trait Wire: Sized {
    fn put(&self, w: &mut Writer<'_>);
    fn get(r: &mut Reader<'_>) -> Result<Self, Bad>;
}

/// A way of values of `T` in messages that is not the type's own, or of a type that has none.
/// [`fields!`](crate::fields) and [`tagged!`](crate::tagged) name it behind a field:
/// `turn as LockTurn`.
pub trait Codec<T> {
    fn put(value: &T, w: &mut Writer<'_>);
    fn get(r: &mut Reader<'_>) -> Result<T, Bad>;
}

/// The way of the type.
pub struct Own;

impl<T: Wire> Codec<T> for Own {
    #[inline]
    fn put(value: &T, w: &mut Writer<'_>) {
        value.put(w);
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<T, Bad> {
        T::get(r)
    }
}

/// A flag, and behind it the value in the way of `C`, if there is one.
pub struct Maybe<C = Own>(PhantomData<C>);

impl<T, C: Codec<T>> Codec<Option<T>> for Maybe<C> {
    #[inline]
    fn put(value: &Option<T>, w: &mut Writer<'_>) {
        value.is_some().put(w);
        if let Some(value) = value {
            C::put(value, w);
        }
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Option<T>, Bad> {
        match bool::get(r)? {
            true => C::get(r).map(Some),
            false => Ok(None),
        }
    }
}

impl<T: Wire> Wire for Option<T> {
    #[inline]
    fn put(&self, w: &mut Writer<'_>) {
        <Maybe as Codec<_>>::put(self, w);
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Option<T>, Bad> {
        <Maybe as Codec<_>>::get(r)
    }
}

fn put_all<T, C: Codec<T>>(values: &[T], w: &mut Writer<'_>) {
    values.iter().for_each(|value| C::put(value, w));
}

/// A number of 32 bits, and as many values in the way of `C`.
pub struct List<C = Own>(PhantomData<C>);

impl<T, C: Codec<T>> Codec<Vec<T>> for List<C> {
    fn put(values: &Vec<T>, w: &mut Writer<'_>) {
        let n = u32::try_from(values.len()).expect("invariant: a message is not that long");
        n.put(w);
        put_all::<T, C>(values, w);
    }
    fn get(r: &mut Reader<'_>) -> Result<Vec<T>, Bad> {
        let n = u32::get(r)?;
        r.values(n as usize, C::get)
    }
}

impl<T: Wire> Wire for Vec<T> {
    #[inline]
    fn put(&self, w: &mut Writer<'_>) {
        <List as Codec<_>>::put(self, w);
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Vec<T>, Bad> {
        <List as Codec<_>>::get(r)
    }
}

/// A number of 16 bits, and as many values in the way of `C`; at least `MIN` and at most `MAX`.
pub struct Short<C = Own, const MIN: usize = 0, const MAX: usize = { u16::MAX as usize }>(
    PhantomData<C>,
);

impl<'a, T: Clone, C: Codec<T>, const MIN: usize, const MAX: usize> Codec<Cow<'a, [T]>>
    for Short<C, MIN, MAX>
{
    fn put(values: &Cow<'a, [T]>, w: &mut Writer<'_>) {
        let n = values.len();
        assert!(
            (MIN..=MAX).contains(&n),
            "invariant: a list in a message has {MIN} to {MAX} values, this one {n}"
        );
        let n = u16::try_from(n).expect("invariant: no limit of a short list is above 65535");
        n.put(w);
        put_all::<T, C>(values, w);
    }
    fn get(r: &mut Reader<'_>) -> Result<Cow<'a, [T]>, Bad> {
        let n = usize::from(u16::get(r)?);
        if n < MIN {
            return Err(r.bad("a list has too few values"));
        }
        if n > MAX {
            return Err(r.bad("a list has too many values"));
        }
        r.values(n, C::get).map(Cow::Owned)
    }
}

/// Values in the way of `C` up to the end of the message. Nothing says how many.
pub struct Rest<C = Own>(PhantomData<C>);

impl<T, C: Codec<T>> Codec<Vec<T>> for Rest<C> {
    fn put(values: &Vec<T>, w: &mut Writer<'_>) {
        put_all::<T, C>(values, w);
    }
    fn get(r: &mut Reader<'_>) -> Result<Vec<T>, Bad> {
        let mut values = Vec::new();
        while !r.is_at_end() {
            let before = r.offset();
            values.push(C::get(r)?);
            assert!(r.offset() > before, "invariant: a value has bytes");
        }
        Ok(values)
    }
}
