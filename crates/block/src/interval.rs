//! Intervals of time as they are stored: months, days and microseconds.
//!
//! **Invariant.** The parts do not convert into each other, as months and days differ in length.
//! Only comparison counts a month for 30 days and a day for 24 hours, so that intervals of other
//! parts may be equal: equality here, and the bytes of a key, are of that span.

use std::cmp::Ordering;

pub const DAYS_PER_MONTH: i64 = 30;
pub const MICROS_PER_DAY: i64 = 86_400_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    pub months: i32,
    pub days: i32,
    pub micros: i64,
}

impl Interval {
    /// The microseconds that it is compared as.
    pub fn span(self) -> i128 {
        let days = i64::from(self.months) * DAYS_PER_MONTH + i64::from(self.days);
        i128::from(days) * i128::from(MICROS_PER_DAY) + i128::from(self.micros)
    }

    /// An interval of that span, in as many months and days as it has. Of a span of no interval,
    /// the nearest one.
    pub fn of_span(span: i128) -> Interval {
        let day = i128::from(MICROS_PER_DAY);
        let month = day * i128::from(DAYS_PER_MONTH);
        let bounded = |n: i128| n.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        let months = bounded(span / month);
        let rest = span - i128::from(months) * month;
        let days = bounded(rest / day);
        let rest = rest - i128::from(days) * day;
        let micros = rest.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        Interval {
            months,
            days,
            micros,
        }
    }

    /// The parts, little endian, as rows and temporary files have them.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.micros.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.days.to_le_bytes());
        bytes[12..].copy_from_slice(&self.months.to_le_bytes());
        bytes
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Interval {
        let packed = u128::from_le_bytes(bytes);
        Interval {
            micros: packed as i64,
            days: (packed >> 64) as i32,
            months: (packed >> 96) as i32,
        }
    }
}

impl PartialEq for Interval {
    fn eq(&self, other: &Interval) -> bool {
        self.span() == other.span()
    }
}

impl Eq for Interval {}

impl PartialOrd for Interval {
    fn partial_cmp(&self, other: &Interval) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Interval {
    fn cmp(&self, other: &Interval) -> Ordering {
        self.span().cmp(&other.span())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_read_back(months: i32, days: i32, micros: i64) {
            let back = Interval::from_bytes(Interval { months, days, micros }.to_bytes());
            prop_assert_eq!((back.months, back.days, back.micros), (months, days, micros));
        }

        #[test]
        fn a_span_is_that_of_an_interval(months: i32, days: i32, micros: i64) {
            let interval = Interval { months, days, micros };
            prop_assert_eq!(Interval::of_span(interval.span()), interval);
        }
    }
}
