//! Structs: the list of their fields.

/// Says which fields of a struct stand in a message, and in which order: all of them.
///
/// `fields! { impl T { a, b as Way } }` makes the list the way of `T` ([`Wire`](crate::Wire)).
/// `fields! { struct Way for T { a, b } }` makes it a [`Codec`](crate::Codec) named `Way`, for a
/// type of another crate.
#[macro_export]
macro_rules! fields {
    (impl $ty:ident { $($field:ident $(as $way:ty)?),* $(,)? }) => {
        impl $crate::Wire for $ty {
            #[inline]
            fn put(&self, w: &mut $crate::Writer<'_>) {
                let $ty { $($field),* } = self;
                $($crate::put_field!(w, $field $(as $way)?);)*
            }
            #[inline]
            fn get(r: &mut $crate::Reader<'_>) -> ::std::result::Result<$ty, $crate::Bad> {
                Ok($ty { $($field: $crate::get_field!(r, $ty, $field $(as $way)?)),* })
            }
        }
    };
    ($(#[$about:meta])* $vis:vis struct $codec:ident for $ty:ident
        { $($field:ident $(as $way:ty)?),* $(,)? }) => {
        $(#[$about])*
        $vis struct $codec;

        impl $crate::Codec<$ty> for $codec {
            #[inline]
            fn put(value: &$ty, w: &mut $crate::Writer<'_>) {
                let $ty { $($field),* } = value;
                $($crate::put_field!(w, $field $(as $way)?);)*
            }
            #[inline]
            fn get(r: &mut $crate::Reader<'_>) -> ::std::result::Result<$ty, $crate::Bad> {
                Ok($ty { $($field: $crate::get_field!(r, $ty, $field $(as $way)?)),* })
            }
        }
    };
}

/// Appends one field.
#[doc(hidden)]
#[macro_export]
macro_rules! put_field {
    ($w:ident, $field:ident) => {
        $crate::Wire::put($field, $w)
    };
    ($w:ident, $field:ident as $way:ty) => {
        <$way as $crate::Codec<_>>::put($field, $w)
    };
}

/// Takes one field; a refusal names it.
#[doc(hidden)]
#[macro_export]
macro_rules! get_field {
    ($r:ident, $of:ident, $field:ident) => {
        $crate::get_field!(@ $of, $field, $crate::Wire::get($r))
    };
    ($r:ident, $of:ident, $field:ident as $way:ty) => {
        $crate::get_field!(@ $of, $field, <$way as $crate::Codec<_>>::get($r))
    };
    (@ $of:ident, $field:ident, $got:expr) => {
        match $got {
            Ok(value) => value,
            Err(bad) => {
                return Err($crate::Bad::in_field(bad, stringify!($of), stringify!($field)));
            }
        }
    };
}
