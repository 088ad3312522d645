//! Times of day with their time zones: how they are stored, and their text and binary forms.
//!
//! A value lies in a row as an integer whose order is PostgreSQL's: by the time in Greenwich, and
//! of one such time the zone that is further east first.
//!
//! ```text
//! microseconds from midnight in Greenwich << 18 | seconds west of Greenwich + 2^17
//! ```

use super::calendar::{self, MICROS_PER_DAY, MICROS_PER_SECOND};
use super::zone::TimeZone;
use super::{IoSettings, fixed, time_in_range};
use crate::error::{Error, Result};

const ZONE_BITS: u32 = 18;
/// Added to seconds west, so that they are not negative.
const ZONE_BIAS: i64 = 1 << (ZONE_BITS - 1);

/// A time of day in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zoned {
    /// From midnight where the zone is.
    pub micros: i64,
    /// Seconds east of Greenwich.
    pub east_s: i32,
}

impl Zoned {
    /// From midnight in Greenwich; negative, or beyond a day, if it is another day there.
    pub fn utc_micros(self) -> i64 {
        self.micros - i64::from(self.east_s) * MICROS_PER_SECOND
    }

    pub fn to_stored(self) -> i64 {
        let west = ZONE_BIAS - i64::from(self.east_s);
        self.utc_micros() << ZONE_BITS | west
    }

    pub fn stored(stored: i64) -> Zoned {
        let west = (stored & (ZONE_BIAS * 2 - 1)) - ZONE_BIAS;
        Zoned {
            micros: (stored >> ZONE_BITS) - west * MICROS_PER_SECOND,
            east_s: -west as i32,
        }
    }

    /// The time of a moment where the session is; `None` at infinity.
    pub fn of_moment(t: i64, io: &IoSettings) -> Option<Zoned> {
        if t == calendar::TIMESTAMP_INFINITY || t == calendar::TIMESTAMP_MINUS_INFINITY {
            return None;
        }
        let east_s = io.time_zone.offset_at(t);
        Some(Zoned {
            micros: (t + i64::from(east_s) * MICROS_PER_SECOND).rem_euclid(MICROS_PER_DAY),
            east_s,
        })
    }

    /// A time of today where the session is.
    pub fn of_time(micros: i64, io: &IoSettings) -> Zoned {
        let offset = i64::from(io.time_zone.offset_at(io.now_micros)) * MICROS_PER_SECOND;
        let today = (io.now_micros + offset).div_euclid(MICROS_PER_DAY) * MICROS_PER_DAY;
        Zoned {
            micros,
            east_s: io.time_zone.offset_at_local(today + micros),
        }
    }
}

pub fn write(stored: i64, out: &mut Vec<u8>) {
    let zoned = Zoned::stored(stored);
    calendar::write_time(out, zoned.micros);
    calendar::write_offset(out, zoned.east_s);
}

pub fn binary_in(bytes: &[u8]) -> Result<i64> {
    let bytes: [u8; 12] = fixed(bytes)?;
    let packed = i128::from_be_bytes(std::array::from_fn(|at| match at {
        0..4 => 0,
        _ => bytes[at - 4],
    }));
    let micros = time_in_range((packed >> 32) as i64)?;
    let east_s = (packed as i32).checked_neg();
    let east_s = east_s.filter(|s| TimeZone::fixed(*s).is_some());
    let displaced = || Error::new("22009", "time zone displacement out of range");
    let east_s = east_s.ok_or_else(displaced)?;
    Ok(Zoned { micros, east_s }.to_stored())
}

pub fn binary_out(stored: i64, out: &mut Vec<u8>) {
    let zoned = Zoned::stored(stored);
    out.extend_from_slice(&zoned.micros.to_be_bytes());
    out.extend_from_slice(&(-zoned.east_s).to_be_bytes());
}

/// With so many digits of its seconds.
pub fn rounded(stored: i64, digits: i32) -> i64 {
    let zoned = Zoned::stored(stored);
    Zoned {
        micros: calendar::rounded(zoned.micros, digits),
        ..zoned
    }
    .to_stored()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_zoned() -> impl Strategy<Value = Zoned> {
        let zones = prop_oneof![Just(0), -57_599..57_600];
        (0..=MICROS_PER_DAY, zones).prop_map(|(micros, east_s)| Zoned { micros, east_s })
    }

    proptest! {
        #[test]
        fn stored_forms_are_in_order(l in any_zoned(), r in any_zoned(), shift in -3600..3600) {
            // The same time in a zone near by.
            let near = Zoned {
                micros: l.micros + i64::from(shift) * MICROS_PER_SECOND,
                east_s: l.east_s + shift,
            };
            for (l, r) in [(l, r), (l, near)] {
                let order = l.utc_micros().cmp(&r.utc_micros()).then(r.east_s.cmp(&l.east_s));
                prop_assert_eq!(l.to_stored().cmp(&r.to_stored()), order);
                prop_assert_eq!(Zoned::stored(l.to_stored()), l);
            }
        }
    }
}
