//! Exact sums of integers and numerics, and of their squares.

use bigdecimal::BigDecimal;
use bigdecimal::num_bigint::BigInt;
use block::numeric::{Numeric, NumericRef};

use super::Spread;
use crate::error::Result;
use crate::expr::{ArithOp, number};

/// A sum of decimals: `(big + small) / 10^scale`, the scale being the greatest of the summands.
#[derive(Clone, Default, Debug)]
struct Sum {
    scale: u16,
    small: i128,
    big: BigInt,
}

fn power_of_ten(n: u16) -> Option<i128> {
    10_i128.checked_pow(n.into())
}

fn big_power_of_ten(n: u16) -> BigInt {
    BigInt::from(10).pow(n.into())
}

impl Sum {
    fn add(&mut self, value: i128, scale: u16) {
        self.widen(scale);
        let scaled = match self.scale - scale {
            0 => Some(value),
            by => power_of_ten(by).and_then(|p| value.checked_mul(p)),
        };
        match scaled {
            Some(scaled) => match self.small.checked_add(scaled) {
                Some(sum) => self.small = sum,
                None => self.big += std::mem::replace(&mut self.small, scaled),
            },
            None => self.big += BigInt::from(value) * big_power_of_ten(self.scale - scale),
        }
    }

    fn add_big(&mut self, value: &BigInt, scale: u16) {
        self.widen(scale);
        match self.scale - scale {
            0 => self.big += value,
            by => self.big += value * big_power_of_ten(by),
        }
    }

    /// Gives the sum at least a scale.
    fn widen(&mut self, scale: u16) {
        if scale <= self.scale {
            return;
        }
        let by = scale - self.scale;
        self.scale = scale;
        if self.big != BigInt::ZERO {
            self.big *= big_power_of_ten(by);
        }
        match power_of_ten(by).and_then(|p| self.small.checked_mul(p)) {
            Some(small) => self.small = small,
            None => {
                self.big += BigInt::from(std::mem::take(&mut self.small)) * big_power_of_ten(by)
            }
        }
    }

    fn value(&self) -> BigDecimal {
        BigDecimal::new(&self.big + self.small, self.scale.into())
    }
}

/// Number, sum, and if wanted sum of squares of exact numbers. NaN and the infinities are counted
/// apart, so that they can be taken back.
#[derive(Clone, Default, Debug)]
pub struct Exact {
    finite: i64,
    nan: i64,
    infinite: i64,
    negative_infinite: i64,
    sum: Sum,
    squares: Option<Sum>,
    /// Summands with the scale of the sum.
    of_scale: i64,
}

impl Exact {
    pub fn new(squares: bool) -> Exact {
        Exact {
            squares: squares.then(Sum::default),
            ..Exact::default()
        }
    }

    /// Of so many numbers with that scale at most, whose sum is `sum / 10^scale`.
    pub fn of(sum: i128, scale: u16, count: i64) -> Exact {
        Exact {
            finite: count,
            sum: Sum {
                scale,
                small: sum,
                big: BigInt::ZERO,
            },
            of_scale: count,
            ..Exact::default()
        }
    }

    pub fn count(&self) -> i64 {
        self.finite + self.nan + self.infinite + self.negative_infinite
    }

    pub fn add_integer(&mut self, value: i64) {
        self.step(value.into(), 0, false);
    }

    pub fn add(&mut self, value: NumericRef<'_>) {
        self.change(value, false);
    }

    /// Takes an integer back.
    pub fn remove_integer(&mut self, value: i64) {
        self.step(value.into(), 0, true);
    }

    /// Takes a value back; false if that cannot be done, as the scale of what is left is not known.
    pub fn remove(&mut self, value: NumericRef<'_>) -> bool {
        let scale = value.scale();
        if scale.is_some_and(|s| s > 0 && s == self.sum.scale && self.of_scale == 1) {
            if self.finite > 1 {
                return false;
            }
            self.finite = 0;
            self.of_scale = 0;
            self.sum = Sum::default();
            self.squares = self.squares.take().map(|_| Sum::default());
            return true;
        }
        self.change(value, true);
        true
    }

    fn change(&mut self, value: NumericRef<'_>, back: bool) {
        if let Some((small, scale)) = value.to_i128() {
            return self.step(small, scale, back);
        }
        let Some(big) = value.to_bigdecimal() else {
            let count = match (value.is_nan(), value.is_negative()) {
                (true, _) => &mut self.nan,
                (false, true) => &mut self.negative_infinite,
                (false, false) => &mut self.infinite,
            };
            *count += if back { -1 } else { 1 };
            return;
        };
        let scale = value.scale().unwrap_or(0);
        let (int, _) = big.into_bigint_and_exponent();
        self.count_scale(scale, back);
        if let Some(squares) = &mut self.squares {
            let square = &int * &int;
            squares.add_big(&if back { -square } else { square }, 2 * scale);
        }
        self.sum.add_big(&if back { -int } else { int }, scale);
    }

    fn step(&mut self, value: i128, scale: u16, back: bool) {
        self.count_scale(scale, back);
        if let Some(squares) = &mut self.squares {
            match (value.checked_mul(value), back) {
                (Some(square), false) => squares.add(square, 2 * scale),
                (Some(square), true) => squares.add(-square, 2 * scale),
                (None, _) => {
                    let square = BigInt::from(value) * value;
                    squares.add_big(&if back { -square } else { square }, 2 * scale);
                }
            }
        }
        // Values have at most 15 bytes.
        self.sum.add(if back { -value } else { value }, scale);
    }

    fn count_scale(&mut self, scale: u16, back: bool) {
        let by = if back { -1 } else { 1 };
        self.finite += by;
        match scale.cmp(&self.sum.scale) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => self.of_scale += by,
            std::cmp::Ordering::Greater => self.of_scale = 1,
        }
    }

    /// NaN or an infinity if there was one.
    fn special(&self) -> Option<Numeric> {
        match (self.nan, self.infinite, self.negative_infinite) {
            (0, 0, 0) => None,
            (0, _, 0) => Some(Numeric::infinity()),
            (0, 0, _) => Some(Numeric::neg_infinity()),
            _ => Some(Numeric::nan()),
        }
    }

    pub fn sum(&self) -> Result<Option<Numeric>> {
        if self.count() == 0 {
            return Ok(None);
        }
        match self.special() {
            Some(special) => Ok(Some(special)),
            None => number::bounded(self.sum.value()).map(Some),
        }
    }

    pub fn average(&self) -> Result<Option<Numeric>> {
        if self.count() == 0 {
            return Ok(None);
        }
        if let Some(special) = self.special() {
            return Ok(Some(special));
        }
        number::divided(self.sum.value(), self.finite.into()).map(Some)
    }

    pub fn spread(&self, how: Spread) -> Result<Option<Numeric>> {
        let n = self.count();
        if n == 0 || how.sample && n == 1 {
            return Ok(None);
        }
        if self.special().is_some() {
            return Ok(Some(Numeric::nan()));
        }
        let Some(squares) = &self.squares else {
            return Err(crate::Error::internal("a variance without squares"));
        };
        let sum = self.sum.value().into_bigint_and_exponent().0;
        let squares = squares.value().into_bigint_and_exponent().0;
        // n * sum(x^2) - sum(x)^2, of twice the scale.
        let numerator = squares * n - &sum * &sum;
        if numerator <= BigInt::ZERO {
            return Ok(Some(number::from_i64(0)));
        }
        let divisor = BigInt::from(n) * if how.sample { n - 1 } else { n };
        let numerator = BigDecimal::new(numerator, 2 * i64::from(self.sum.scale));
        let variance = number::divided(numerator, BigDecimal::from(divisor))?;
        Ok(Some(match how.deviation {
            true => number::root(&variance),
            false => variance,
        }))
    }

    /// Bytes beyond the structure's own.
    pub fn heap_size(&self) -> usize {
        let of = |s: &Sum| (s.big.bits() / 8) as usize;
        of(&self.sum) + self.squares.as_ref().map_or(0, of)
    }
}

/// The average of so many integers.
pub fn average(sum: i128, count: i64) -> Result<Numeric> {
    number::apply(
        ArithOp::Div,
        number::from_i128(sum).borrow(),
        number::from_i64(count).borrow(),
    )
}
