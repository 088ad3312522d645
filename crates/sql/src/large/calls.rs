//! The functions that clients call.

use block::value::{Datum, DatumRef};

use super::{MAX_SIZE, files};
use crate::dict::acl::Privileges;
use crate::error::{Error, Result};
use crate::expr::Val;
use crate::expr::cast;
use crate::expr::func::{Func, SessionFunc, Signature};
use crate::session::Core;
use crate::types::SqlType;

/// Flags of `lo_open`.
const WRITE: i64 = 0x2_0000;
const READ: i64 = 0x4_0000;

/// The most that is read at once: as a text, two digits for each byte after `\x`, it is below
/// 1 GiB, as every value is.
const MAX_READ: u64 = (0x3fff_ffff - 4) / 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LargeFunc {
    /// `lo_creat`, whose flags mean nothing.
    Creat,
    Create,
    FromBytea,
    Import,
    Export,
    Unlink,
    Open,
    Close,
    Read,
    Write,
    Seek {
        wide: bool,
    },
    Tell {
        wide: bool,
    },
    Truncate,
    Get,
    Put,
}

/// The overloads of a function of large objects; none: it is no such function.
pub fn overloads(name: &str) -> Vec<Signature> {
    use LargeFunc::*;
    use SqlType::{Bytea, Int4, Int8, Oid, Text, Void};
    const fn one(func: LargeFunc, args: &'static [SqlType], result: SqlType) -> Signature {
        Signature {
            func: Func::Session(SessionFunc::Large(func)),
            args,
            result,
        }
    }
    match name {
        "lo_creat" => vec![one(Creat, &[Int4], Oid)],
        "lo_create" => vec![one(Create, &[Oid], Oid)],
        "lo_from_bytea" => vec![one(FromBytea, &[Oid, Bytea], Oid)],
        "lo_import" => vec![one(Import, &[Text], Oid), one(Import, &[Text, Oid], Oid)],
        "lo_export" => vec![one(Export, &[Oid, Text], Int4)],
        "lo_unlink" => vec![one(Unlink, &[Oid], Int4)],
        "lo_open" => vec![one(Open, &[Oid, Int4], Int4)],
        "lo_close" => vec![one(Close, &[Int4], Int4)],
        "loread" => vec![one(Read, &[Int4, Int4], Bytea)],
        "lowrite" => vec![one(Write, &[Int4, Bytea], Int4)],
        "lo_lseek" => vec![one(Seek { wide: false }, &[Int4, Int4, Int4], Int4)],
        "lo_lseek64" => vec![one(Seek { wide: true }, &[Int4, Int8, Int4], Int8)],
        "lo_tell" => vec![one(Tell { wide: false }, &[Int4], Int4)],
        "lo_tell64" => vec![one(Tell { wide: true }, &[Int4], Int8)],
        "lo_truncate" => vec![one(Truncate, &[Int4, Int4], Int4)],
        "lo_truncate64" => vec![one(Truncate, &[Int4, Int8], Int4)],
        "lo_get" => vec![one(Get, &[Oid], Bytea), one(Get, &[Oid, Int8, Int4], Bytea)],
        "lo_put" => vec![one(Put, &[Oid, Int8, Bytea], Void)],
        _ => Vec::new(),
    }
}

/// The arguments of a call, of which none is NULL.
struct Args<'a, 'v>(&'a [Val<'v>]);

impl Args<'_, '_> {
    fn integer(&self, at: usize) -> Result<i64> {
        let value = self.0.get(at).and_then(|v| cast::integer(v.get()));
        value.ok_or_else(|| Error::internal(format!("argument {at} is no integer")))
    }

    fn number(&self, at: usize) -> Result<u32> {
        let wrong = |_| Error::internal("an object's number beyond 32 bits");
        u32::try_from(self.integer(at)?).map_err(wrong)
    }

    fn descriptor(&self) -> Result<i32> {
        i32::try_from(self.integer(0)?).map_err(|_| Error::internal("a descriptor beyond 32 bits"))
    }

    fn bytes(&self, at: usize) -> Result<&[u8]> {
        match self.0.get(at).map(Val::get) {
            Some(DatumRef::Bytea(bytes)) => Ok(bytes),
            other => Err(Error::internal(format!("{other:?} as bytes"))),
        }
    }

    fn text(&self, at: usize) -> Result<&str> {
        match self.0.get(at).map(Val::get) {
            Some(DatumRef::Text(text)) => Ok(text),
            other => Err(Error::internal(format!("{other:?} as a text"))),
        }
    }
}

fn number(oid: u32) -> Val<'static> {
    Val::int8(oid.into())
}

/// A length that may be zero at least.
fn length(asked: i64) -> u64 {
    u64::try_from(asked).unwrap_or(0)
}

impl Core {
    /// A call of one of the functions, with no argument NULL.
    pub fn large_call(&mut self, func: LargeFunc, args: &[Val<'_>]) -> Result<Val<'static>> {
        let a = Args(args);
        Ok(match func {
            LargeFunc::Creat => number(self.create_large_object(0)?),
            LargeFunc::Create => number(self.create_large_object(a.number(0)?)?),
            LargeFunc::FromBytea => {
                let oid = self.create_large_object(a.number(0)?)?;
                self.write_large(oid, 0, a.bytes(1)?)?;
                number(oid)
            }
            LargeFunc::Import => {
                let wanted = if args.len() > 1 { a.number(1)? } else { 0 };
                number(files::import(self, a.text(0)?, wanted)?)
            }
            LargeFunc::Export => {
                files::export(self, a.number(0)?, a.text(1)?)?;
                Val::int4(1)
            }
            LargeFunc::Unlink => {
                self.unlink_large(a.number(0)?)?;
                Val::int4(1)
            }
            LargeFunc::Open => Val::int4(self.open_large(a.number(0)?, a.integer(1)?)?),
            LargeFunc::Close => {
                self.cursors.large.close(a.descriptor()?)?;
                Val::int4(0)
            }
            LargeFunc::Read => Val::Own(Datum::Bytea(
                self.read_descriptor(a.descriptor()?, length(a.integer(1)?))?,
            )),
            LargeFunc::Write => {
                let bytes = a.bytes(1)?;
                self.write_descriptor(a.descriptor()?, bytes)?;
                Val::int4(i32::try_from(bytes.len()).unwrap_or(i32::MAX))
            }
            LargeFunc::Seek { wide } => {
                let to = self.seek(a.descriptor()?, a.integer(1)?, a.integer(2)?)?;
                place("lo_lseek", a.descriptor()?, to, wide)?
            }
            LargeFunc::Tell { wide } => {
                let at = self.cursors.large.get(a.descriptor()?)?.at;
                place("lo_tell", a.descriptor()?, at, wide)?
            }
            LargeFunc::Truncate => {
                self.truncate_descriptor(a.descriptor()?, a.integer(1)?)?;
                Val::int4(0)
            }
            LargeFunc::Get => self.get_large(&a)?,
            LargeFunc::Put => {
                let object = self.permitted_object(a.number(0)?, Privileges::UPDATE)?;
                let at = target(a.integer(1)?)?;
                self.write_large(object.oid, at, a.bytes(2)?)?;
                crate::session::void()
            }
        })
    }

    fn open_large(&mut self, oid: u32, flags: i64) -> Result<i32> {
        let writes = flags & WRITE != 0;
        if !writes && flags & READ == 0 {
            let message = format!("invalid flags for opening a large object: {flags}");
            return Err(Error::new("22023", message));
        }
        // What is open for writing can be read, too.
        let wanted = match writes {
            true => Privileges::SELECT.and(Privileges::UPDATE),
            false => Privileges::SELECT,
        };
        let object = self.permitted_object(oid, wanted)?;
        let mark = self.mark;
        self.cursors.large.add(object.oid, writes, mark)
    }

    fn read_descriptor(&mut self, fd: i32, most: u64) -> Result<Vec<u8>> {
        let open = *self.cursors.large.get(fd)?;
        let most = usize::try_from(most.min(MAX_READ)).unwrap_or(0);
        let bytes = self.read_large(open.oid, open.at, most)?;
        self.cursors.large.get(fd)?.at += bytes.len() as u64;
        Ok(bytes)
    }

    fn write_descriptor(&mut self, fd: i32, bytes: &[u8]) -> Result<()> {
        let open = self.cursors.large.writing(fd)?;
        self.write_large(open.oid, open.at, bytes)?;
        self.cursors.large.get(fd)?.at += bytes.len() as u64;
        Ok(())
    }

    fn seek(&mut self, fd: i32, offset: i64, whence: i64) -> Result<u64> {
        let open = *self.cursors.large.get(fd)?;
        let from = match whence {
            0 => 0,
            1 => open.at,
            2 => self.large_size(open.oid)?,
            other => {
                let message = format!("invalid whence setting: {other}");
                return Err(Error::new("22023", message));
            }
        };
        let to = target(offset.saturating_add_unsigned(from))?;
        self.cursors.large.get(fd)?.at = to;
        Ok(to)
    }

    fn truncate_descriptor(&mut self, fd: i32, size: i64) -> Result<()> {
        let open = self.cursors.large.writing(fd)?;
        let wanted = u64::try_from(size).ok().filter(|size| *size <= MAX_SIZE);
        let Some(wanted) = wanted else {
            let message = format!("invalid large object truncation target: {size}");
            return Err(Error::new("22023", message));
        };
        self.truncate_large(open.oid, wanted)
    }

    fn get_large(&mut self, a: &Args<'_, '_>) -> Result<Val<'static>> {
        let object = self.permitted_object(a.number(0)?, Privileges::SELECT)?;
        let (at, most) = match a.0.len() {
            1 => (0, None),
            _ if a.integer(2)? < 0 => {
                return Err(Error::new("22023", "requested length cannot be negative"));
            }
            _ => (target(a.integer(1)?)?, Some(length(a.integer(2)?))),
        };
        let rest = self.large_size(object.oid)?.saturating_sub(at);
        let most = most.map_or(rest, |most| most.min(rest));
        if most > MAX_READ {
            return Err(Error::new(
                "54000",
                "large object read request is too large",
            ));
        }
        let most = usize::try_from(most).unwrap_or(0);
        Ok(Val::Own(Datum::Bytea(
            self.read_large(object.oid, at, most)?,
        )))
    }
}

/// A place in an object, from its beginning.
fn target(at: i64) -> Result<u64> {
    let wanted = u64::try_from(at).ok().filter(|at| *at <= MAX_SIZE);
    wanted.ok_or_else(|| {
        let message = format!("invalid large object seek target: {at}");
        Error::new("22023", message)
    })
}

/// A place as a function gives it, which may have 32 bits only.
fn place(name: &str, fd: i32, at: u64, wide: bool) -> Result<Val<'static>> {
    if wide {
        return Ok(Val::int8(i64::try_from(at).unwrap_or(i64::MAX)));
    }
    i32::try_from(at).map(Val::int4).map_err(|_| {
        let message = format!("{name} result out of range for large-object descriptor {fd}");
        Error::new("22003", message)
    })
}
