//! Enums: the list of their kinds, each with its tag, name and fields.

use crate::{Bad, Reader, Writer};

/// A family of values of several kinds: each kind has a number, its *tag*, and a name.
/// [`tagged!`](crate::tagged) makes it.
///
/// The tag stands in front of the fields ([`Codec`](crate::Codec)), or elsewhere: `put_fields` and
/// `get_fields` leave it to the caller, which may have it in the header of a frame.
pub trait Tagged<T> {
    type Tag: Copy + 'static;
    /// Every tag, and what it is called.
    const TAGS: &'static [(Self::Tag, &'static str)];
    fn tag(value: &T) -> Self::Tag;
    fn put_fields(value: &T, w: &mut Writer<'_>);
    fn get_fields(tag: Self::Tag, r: &mut Reader<'_>) -> Result<T, Bad>;
}

/// Whether no two tags are equal. Looked at when a family is compiled.
#[doc(hidden)]
pub const fn are_distinct(tags: &[u16]) -> bool {
    let mut i = 0;
    while i < tags.len() {
        let mut k = i + 1;
        while k < tags.len() {
            if tags[i] == tags[k] {
                return false;
            }
            k += 1;
        }
        i += 1;
    }
    true
}

/// Says which kinds an enum has: `Name = tag { field, field as Way }`, `Name = tag (place, place)`
/// for a tuple, `Name = tag` for neither. Fields stand in a message in the order of the list.
///
/// `tagged! { impl T: u8 { .. } }` makes the list the way of `T` ([`Wire`](crate::Wire)), the tag
/// first. `tagged! { struct Family: u8 for T { .. } }` makes it a [`Tagged`](crate::Tagged) and a
/// [`Codec`](crate::Codec) named `Family`, for a type of another crate or a tag that stands
/// elsewhere.
#[macro_export]
macro_rules! tagged {
    (impl $ty:ident: $tag:ident { $($kinds:tt)* }) => {
        const _: () = {
            $crate::tagged! { struct Kinds: $tag for $ty { $($kinds)* } }
            impl $crate::Wire for $ty {
                #[inline]
                fn put(&self, w: &mut $crate::Writer<'_>) {
                    <Kinds as $crate::Codec<$ty>>::put(self, w);
                }
                #[inline]
                fn get(r: &mut $crate::Reader<'_>) -> ::std::result::Result<$ty, $crate::Bad> {
                    <Kinds as $crate::Codec<$ty>>::get(r)
                }
            }
        };
    };
    ($(#[$about:meta])* $vis:vis struct $family:ident: $tag:ident
        for $ty:ident $(<$life:lifetime>)? { $(
            $kind:ident = $number:literal
                $({ $($field:ident $(as $way:ty)?),* $(,)? })?
                $(( $($place:ident $(as $place_way:ty)?),* $(,)? ))?
        ),* $(,)? }) => {
        $(#[$about])*
        $vis struct $family;

        const _: () = assert!(
            $crate::are_distinct(&[$($number),*]),
            "two kinds have the same tag"
        );

        impl $family {
            /// Appends a value; `put_tag` does with the tag what is to be done.
            #[inline]
            fn put_with$(<$life>)?(
                value: &$ty$(<$life>)?,
                w: &mut $crate::Writer<'_>,
                put_tag: impl FnOnce(&mut $crate::Writer<'_>, $tag),
            ) {
                match value {
                    $($ty::$kind $({ $($field),* })? $(( $($place),* ))? => {
                        put_tag(w, $number);
                        $($($crate::put_field!(w, $field $(as $way)?);)*)?
                        $($($crate::put_field!(w, $place $(as $place_way)?);)*)?
                    })*
                }
            }
        }

        impl$(<$life>)? $crate::Tagged<$ty$(<$life>)?> for $family {
            type Tag = $tag;
            const TAGS: &'static [($tag, &'static str)] = &[$(($number, stringify!($kind))),*];

            #[inline]
            fn tag(value: &$ty$(<$life>)?) -> $tag {
                match value {
                    $($ty::$kind { .. } => $number,)*
                }
            }
            #[inline]
            fn put_fields(value: &$ty$(<$life>)?, w: &mut $crate::Writer<'_>) {
                $family::put_with(value, w, |_, _| ());
            }
            #[inline]
            fn get_fields(
                tag: $tag,
                r: &mut $crate::Reader<'_>,
            ) -> ::std::result::Result<$ty$(<$life>)?, $crate::Bad> {
                Ok(match tag {
                    $($number => $ty::$kind
                        $({ $($field: $crate::get_field!(r, $kind, $field $(as $way)?)),* })?
                        $(( $($crate::get_field!(r, $kind, $place $(as $place_way)?)),* ))?,)*
                    _ => return Err(r.bad("it is of no kind that there is")),
                })
            }
        }

        impl$(<$life>)? $crate::Codec<$ty$(<$life>)?> for $family {
            #[inline]
            fn put(value: &$ty$(<$life>)?, w: &mut $crate::Writer<'_>) {
                $family::put_with(value, w, |w, tag| w.put(&tag));
            }
            #[inline]
            fn get(
                r: &mut $crate::Reader<'_>,
            ) -> ::std::result::Result<$ty$(<$life>)?, $crate::Bad> {
                let tag = r.get()?;
                <$family as $crate::Tagged<$ty$(<$life>)?>>::get_fields(tag, r)
            }
        }
    };
}
