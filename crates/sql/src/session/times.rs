//! Functions of a session that deal with its clock and its random numbers.

use block::interval::Interval;
use block::value::DatumRef;

use super::calls::void;
use super::core::{Core, cancelled, now_micros};
use super::random::Random;
use crate::error::{Error, Result};
use crate::expr::Val;
use crate::pgtype::calendar::{
    MICROS_PER_DAY, MICROS_PER_SECOND, TIMESTAMP_INFINITY, civil_from_days,
};

/// More than anybody waits for, and less than a duration can hold.
const MAX_SLEEP_S: f64 = 1e9;

/// The seconds of an interval, whose months have 30 days; twelve of them have a quarter day more
/// than 365.
fn seconds_of(span: Interval) -> f64 {
    let (years, months) = (span.months / 12, span.months % 12);
    let days = f64::from(years) * 365.25 + f64::from(months) * 30.0 + f64::from(span.days);
    days * 86_400.0 + span.micros as f64 / MICROS_PER_SECOND as f64
}

impl Core {
    /// From now on `random()` gives the numbers that belong to the seed.
    pub(super) fn seed(&mut self, seed: f64) -> Result<()> {
        if !(-1.0..=1.0).contains(&seed) {
            let mut shown = Vec::new();
            crate::pgtype::write_rounded(&mut shown, seed, 6);
            let shown = String::from_utf8_lossy(&shown);
            let message = format!("setseed parameter {shown} is out of allowed range [-1,1]");
            return Err(Error::new("22023", message));
        }
        self.random = Random::seeded(seed);
        Ok(())
    }

    /// The time by the clock in the session's zone, as C writes it.
    pub(super) fn time_of_day(&self) -> String {
        const DAYS: [&str; 7] = ["Sat", "Sun", "Mon", "Tue", "Wed", "Thu", "Fri"];
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        let now = now_micros();
        let zone = self.io.time_zone;
        let local = now + i64::from(zone.offset_at(now)) * MICROS_PER_SECOND;
        let days = local.div_euclid(MICROS_PER_DAY);
        let date = civil_from_days(days);
        let time = local.rem_euclid(MICROS_PER_DAY);
        let seconds = time / MICROS_PER_SECOND;
        format!(
            "{} {} {:02} {:02}:{:02}:{:02}.{:06} {} {}",
            DAYS[days.rem_euclid(7) as usize],
            MONTHS[date.month as usize - 1],
            date.day,
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60,
            time % MICROS_PER_SECOND,
            date.year,
            zone.abbreviation_at(now)
        )
    }

    pub(super) fn sleep(&mut self, args: &[Val<'_>]) -> Result<Val<'static>> {
        let seconds = match args.first().map(Val::get) {
            Some(DatumRef::Float8(seconds)) => seconds,
            Some(DatumRef::Interval(span)) => seconds_of(span),
            Some(DatumRef::TimestampTz(TIMESTAMP_INFINITY)) => f64::INFINITY,
            Some(DatumRef::TimestampTz(until)) => {
                until.saturating_sub(now_micros()) as f64 / MICROS_PER_SECOND as f64
            }
            _ => return Ok(Val::NULL),
        };
        // Less than nothing, or no number, is not waited for.
        let seconds = match seconds > 0.0 {
            true => seconds.min(MAX_SLEEP_S),
            false => 0.0,
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs_f64(seconds);
        match wait::Waiter::new().wait(wait::Event::Sleep, [0; 3], Some(deadline)) {
            wait::WaitResult::Cancelled => Err(cancelled()),
            _ => Ok(void()),
        }
    }
}
