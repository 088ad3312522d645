//! Sums of squares of double precision numbers, updated with each value after Youngs and Cramer,
//! operation for operation as PostgreSQL 15 does it.

use super::{Pairs, Spread};
use crate::error::{Error, Result};

pub fn overflow() -> Error {
    Error::new("22003", "value out of range: overflow")
}

/// Number, sum, and sum of the squares of the differences from the mean.
#[derive(Clone, Copy, Default, Debug)]
pub struct Moments {
    n: f64,
    sx: f64,
    sxx: f64,
}

impl Moments {
    /// Of so many numbers with that sum, for an average.
    pub fn of(sum: f64, count: i64) -> Moments {
        Moments {
            n: count as f64,
            // As if added to zero: a negative zero is none.
            sx: 0.0 + sum,
            sxx: 0.0,
        }
    }

    pub fn add(&mut self, x: f64) -> Result<()> {
        let before = *self;
        self.n += 1.0;
        self.sx += x;
        if before.n > 0.0 {
            let t = x * self.n - self.sx;
            self.sxx += t * t / (self.n * before.n);
            if self.sx.is_infinite() || self.sxx.is_infinite() {
                if !before.sx.is_infinite() && !x.is_infinite() {
                    return Err(overflow());
                }
                self.sxx = f64::NAN;
            }
        } else if !x.is_finite() {
            self.sxx = f64::NAN;
        }
        Ok(())
    }

    pub fn average(&self) -> Option<f64> {
        (self.n > 0.0).then(|| self.sx / self.n)
    }

    pub fn spread(&self, how: Spread) -> Option<f64> {
        let divisor = if how.sample { self.n - 1.0 } else { self.n };
        let variance = (divisor > 0.0).then(|| self.sxx / divisor)?;
        Some(if how.deviation {
            variance.sqrt()
        } else {
            variance
        })
    }
}

/// As [`Moments`], of pairs.
#[derive(Clone, Copy, Default, Debug)]
pub struct PairMoments {
    n: f64,
    sx: f64,
    sxx: f64,
    sy: f64,
    syy: f64,
    sxy: f64,
}

impl PairMoments {
    pub fn add(&mut self, y: f64, x: f64) -> Result<()> {
        let before = *self;
        self.n += 1.0;
        self.sx += x;
        self.sy += y;
        if before.n > 0.0 {
            let (tx, ty) = (x * self.n - self.sx, y * self.n - self.sy);
            let scale = 1.0 / (self.n * before.n);
            self.sxx += tx * tx * scale;
            self.syy += ty * ty * scale;
            self.sxy += tx * ty * scale;
            let finite_x = !before.sx.is_infinite() && !x.is_infinite();
            let finite_y = !before.sy.is_infinite() && !y.is_infinite();
            if (self.sx.is_infinite() || self.sxx.is_infinite()) && finite_x
                || (self.sy.is_infinite() || self.syy.is_infinite()) && finite_y
                || self.sxy.is_infinite() && finite_x && finite_y
            {
                return Err(overflow());
            }
            for sum in [&mut self.sxx, &mut self.syy, &mut self.sxy] {
                if sum.is_infinite() {
                    *sum = f64::NAN;
                }
            }
        } else {
            if !x.is_finite() {
                (self.sxx, self.sxy) = (f64::NAN, f64::NAN);
            }
            if !y.is_finite() {
                (self.syy, self.sxy) = (f64::NAN, f64::NAN);
            }
        }
        Ok(())
    }

    /// Any statistic but the number of pairs.
    pub fn result(&self, what: Pairs) -> Option<f64> {
        let PairMoments {
            n,
            sx,
            sxx,
            sy,
            syy,
            sxy,
        } = *self;
        if n < 1.0 {
            return None;
        }
        match what {
            Pairs::Count => Some(n),
            Pairs::AvgX => Some(sx / n),
            Pairs::AvgY => Some(sy / n),
            Pairs::Sxx => Some(sxx),
            Pairs::Syy => Some(syy),
            Pairs::Sxy => Some(sxy),
            Pairs::CovarPop => Some(sxy / n),
            Pairs::CovarSamp => (n >= 2.0).then(|| sxy / (n - 1.0)),
            Pairs::Corr => (sxx != 0.0 && syy != 0.0).then(|| sxy / (sxx * syy).sqrt()),
            Pairs::R2 if sxx == 0.0 => None,
            Pairs::R2 if syy == 0.0 => Some(1.0),
            Pairs::R2 => Some((sxy * sxy) / (sxx * syy)),
            Pairs::Slope => (sxx != 0.0).then(|| sxy / sxx),
            Pairs::Intercept => (sxx != 0.0).then(|| (sy - sx * sxy / sxx) / n),
        }
    }

    /// The number of pairs.
    pub fn count(&self) -> i64 {
        self.n as i64
    }
}
