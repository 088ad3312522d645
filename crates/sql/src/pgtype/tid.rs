//! `tid`, the place of a row: the number of a block and of a slot in it, as `(block,slot)`.
//!
//! Inside it is one number, `block << 16 | slot`, so that it compares as PostgreSQL's.

use super::number;
use crate::error::{Error, Result};

pub fn parse(text: &str) -> Result<i64> {
    let wrong = || {
        let message = format!("invalid input syntax for type tid: \"{text}\"");
        Error::new("22P02", message)
    };
    // As in PostgreSQL, what stands outside of the parentheses does not matter.
    let inside = text.split_once('(').map(|(_, inside)| inside);
    let inside = inside.and_then(|inside| inside.split_once(')'));
    let (block, slot) = inside
        .and_then(|(inside, _)| inside.split_once(','))
        .ok_or_else(wrong)?;
    let block: i64 = block.trim_start().parse().map_err(|_| wrong())?;
    let slot: u16 = slot.trim_start().parse().map_err(|_| wrong())?;
    // A block may be written as a negative number of 32 bits, too.
    let block = match u32::try_from(block) {
        Ok(block) => block,
        Err(_) => i32::try_from(block).map_err(|_| wrong())? as u32,
    };
    Ok(i64::from(block) << 16 | i64::from(slot))
}

pub fn write(out: &mut Vec<u8>, tid: i64) {
    out.push(b'(');
    number::write_integer(out, tid >> 16);
    out.push(b',');
    number::write_integer(out, tid & 0xffff);
    out.push(b')');
}

pub fn from_binary(bytes: [u8; 6]) -> i64 {
    bytes.iter().fold(0, |all, b| all << 8 | i64::from(*b))
}

pub fn to_binary(tid: i64) -> [u8; 6] {
    let [_, _, bytes @ ..] = tid.to_be_bytes();
    bytes
}
