//! Values that the protocols of `fusion` say to each other: of the global cache service, of
//! enqueues, of commit and visibility, of sequences.

use crate::{Bad, Below62, Reader, Wire, Writer, fields, tagged};
use block::sequence::{SequenceRange, SequenceState};
use fusion::gcs::{self, Declaration, DeclaredHold, Source, Want};
use fusion::ges::{self, Modes, Statement, Value};
use fusion::sequences::Given;
use fusion::visibility::Evidence;

// ---- the global cache service ----

const _: () = {
    use gcs::Mode;
    tagged! { impl Mode: u8 {
        Shared = 0,
        Exclusive = 1,
    } }
};

tagged! { impl Want: u8 {
    Read = 0 { snapshot },
    Shared = 1,
    Exclusive = 2,
} }

/// One byte: from disk, the requester's own copy, or that with the duty to write it.
impl Wire for Source {
    #[inline]
    fn put(&self, w: &mut Writer<'_>) {
        let tag: u8 = match self {
            Source::Disk => 0,
            Source::Own { dirty: false } => 1,
            Source::Own { dirty: true } => 2,
        };
        tag.put(w);
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Source, Bad> {
        match u8::get(r)? {
            0 => Ok(Source::Disk),
            1 => Ok(Source::Own { dirty: false }),
            2 => Ok(Source::Own { dirty: true }),
            _ => Err(r.bad("there is no such source of a block")),
        }
    }
}

fields! { impl DeclaredHold { mode, turn, id, duty } }
fields! { impl Declaration { held, image } }

// ---- enqueues ----

const _: () = {
    use ges::Mode;
    tagged! { impl Mode: u8 {
        Null = 0,
        AccessShared = 1,
        SubShared = 2,
        SubExclusive = 3,
        SharedUpdateExclusive = 4,
        Shared = 5,
        SharedSubExclusive = 6,
        WriteExclusive = 7,
        Exclusive = 8,
    } }
};

/// A bit for each mode.
impl Wire for Modes {
    fn put(&self, w: &mut Writer<'_>) {
        self.bits().put(w);
    }
    fn get(r: &mut Reader<'_>) -> Result<Modes, Bad> {
        let modes = Modes::from_bits(r.get()?);
        modes.ok_or_else(|| r.bad("a set has a mode that there is not"))
    }
}

fields! { impl Statement { number, has } }

// A version is an SCN, or one more.
fields! { impl Value { version as Below62, data as Below62 } }

// ---- commit and visibility ----

fields! { impl Evidence { instance, group, scn } }

// ---- sequences ----

fields! { impl SequenceState { draw, mark, exhausted } }

/// At least one value, and they differ.
impl Wire for Given {
    fn put(&self, w: &mut Writer<'_>) {
        let Given {
            range: SequenceRange { first, count },
            increment,
            keep,
            state,
            pos,
            durable,
        } = self;
        first.put(w);
        increment.put(w);
        pos.put(w);
        durable.put(w);
        count.put(w);
        keep.put(w);
        state.put(w);
    }
    fn get(r: &mut Reader<'_>) -> Result<Given, Bad> {
        let (first, increment) = (r.get()?, r.get()?);
        let (pos, durable) = (r.get()?, r.get()?);
        let count = r.get()?;
        if count == 0 || increment == 0 {
            return Err(r.bad("no values of a sequence were given"));
        }
        Ok(Given {
            range: SequenceRange { first, count },
            increment,
            keep: r.get()?,
            state: r.get()?,
            pos,
            durable,
        })
    }
}
