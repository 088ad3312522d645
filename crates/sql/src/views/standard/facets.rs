//! What the standard asks of a type: lengths, precisions and scales, by its number and modifier.
//!
//! They are functions of `information_schema`, too, under PostgreSQL's names (`_pg_char_max_length`
//! and so on).

use super::super::describe;
use crate::types::SqlType;
use crate::types::numeric_typmod;

const BIT: u32 = 1560;
const VARBIT: u32 = 1562;
const TIMETZ: u32 = 1266;

const CHAR: u32 = SqlType::Char.oid();
const VARCHAR: u32 = SqlType::Varchar.oid();
const TEXT: u32 = SqlType::Text.oid();
const INT2: u32 = SqlType::Int2.oid();
const INT4: u32 = SqlType::Int4.oid();
const INT8: u32 = SqlType::Int8.oid();
const FLOAT4: u32 = SqlType::Float4.oid();
const FLOAT8: u32 = SqlType::Float8.oid();
const NUMERIC: u32 = SqlType::Numeric.oid();
const DATE: u32 = SqlType::Date.oid();
const TIME: u32 = SqlType::Time.oid();
const TIMESTAMP: u32 = SqlType::Timestamp.oid();
const TIMESTAMPTZ: u32 = SqlType::TimestampTz.oid();
const INTERVAL: u32 = SqlType::Interval.oid();

/// A type with its modifier.
#[derive(Clone, Copy)]
pub struct Facets {
    pub number: u32,
    pub typmod: i32,
}

impl Facets {
    /// Characters, or bits.
    pub fn max_length(self) -> Option<i32> {
        match self.number {
            _ if self.typmod == -1 => None,
            CHAR | VARCHAR => Some(self.typmod - 4),
            BIT | VARBIT => Some(self.typmod),
            _ => None,
        }
    }

    /// Bytes in UTF-8.
    pub fn octet_length(self) -> Option<i32> {
        const UNLIMITED: i32 = 1 << 30;
        const BYTES_OF_A_CHARACTER: i32 = 4;
        match self.number {
            TEXT | CHAR | VARCHAR if self.typmod == -1 => Some(UNLIMITED),
            TEXT | CHAR | VARCHAR => {
                let length = self.max_length()?;
                Some(length.saturating_mul(BYTES_OF_A_CHARACTER))
            }
            _ => None,
        }
    }

    pub fn precision(self) -> Option<i32> {
        Some(match self.number {
            INT2 => 16,
            INT4 => 32,
            INT8 => 64,
            FLOAT4 => 24,
            FLOAT8 => 53,
            NUMERIC if self.typmod != -1 => numeric_typmod(self.typmod).0,
            _ => return None,
        })
    }

    pub fn radix(self) -> Option<i32> {
        Some(match self.number {
            INT2 | INT4 | INT8 | FLOAT4 | FLOAT8 => 2,
            NUMERIC => 10,
            _ => return None,
        })
    }

    pub fn scale(self) -> Option<i32> {
        Some(match self.number {
            INT2 | INT4 | INT8 => 0,
            NUMERIC if self.typmod != -1 => numeric_typmod(self.typmod).1,
            _ => return None,
        })
    }

    /// Digits of seconds.
    pub fn time_precision(self) -> Option<i32> {
        const MOST: i32 = 6;
        const ANY: i32 = 0xffff;
        Some(match (self.number, self.typmod) {
            (DATE, _) => 0,
            (TIME | TIMESTAMP | TIMESTAMPTZ | TIMETZ, m) => match m < 0 {
                true => MOST,
                false => m,
            },
            (INTERVAL, m) if m < 0 || m & ANY == ANY => MOST,
            (INTERVAL, m) => m & ANY,
            _ => return None,
        })
    }

    /// The fields of an interval that has not all.
    pub fn interval(self) -> Option<String> {
        if self.number != INTERVAL {
            return None;
        }
        let written = describe::type_name(self.number, self.typmod)?;
        let rest = written.strip_prefix("interval")?;
        let rest = rest.trim_start_matches(|c: char| "()".contains(c) || c.is_ascii_digit());
        let fields = rest.strip_prefix(' ')?;
        Some(fields.to_uppercase())
    }
}
