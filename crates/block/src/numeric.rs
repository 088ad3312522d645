//! `numeric`: exact decimal numbers of any size, NaN and the infinities, in a compact encoding.
//!
//! ```text
//! class u8: 0 -Infinity, 1 negative, 2 zero or positive, 3 Infinity, 4 NaN
//! for classes 1 and 2: scale u16 (digits after the point)
//! | magnitude, little endian, without trailing zero bytes
//! ```
//!
//! The scale belongs to the value, as PostgreSQL shows it (`1.50` is not shown as `1.5`), but not
//! to its identity: the two are equal. NaN equals itself and is greater than everything. `sql` has
//! arithmetic and its rules for scales.

use bigdecimal::num_bigint::{BigInt, BigUint, Sign};
use bigdecimal::{BigDecimal, RoundingMode, Zero};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::{BlockError, Result};

pub use short::Short;

mod short;

const NEG_INFINITY: u8 = 0;
const NEGATIVE: u8 = 1;
const POSITIVE: u8 = 2;
const INFINITY: u8 = 3;
const NAN: u8 = 4;
/// The most digits after the point, as PostgreSQL's limit.
pub const MAX_SCALE: u16 = 16383;
/// The most digits before the point, as PostgreSQL's limit.
pub const MAX_INTEGER_DIGITS: u64 = 131_072;

/// An owned number.
#[derive(Clone)]
pub struct Numeric(Box<[u8]>);

/// A borrowed number in its encoding. It is well formed by construction: [`NumericRef::from_bytes`]
/// checks.
#[derive(Clone, Copy)]
pub struct NumericRef<'a>(&'a [u8]);

/// The error for a text that is no number, or a number beyond the limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid numeric")]
pub struct ParseNumericError;

impl Numeric {
    pub fn nan() -> Numeric {
        Numeric(Box::new([NAN]))
    }
    pub fn infinity() -> Numeric {
        Numeric(Box::new([INFINITY]))
    }
    pub fn neg_infinity() -> Numeric {
        Numeric(Box::new([NEG_INFINITY]))
    }

    /// Converts a number. A negative scale (`1e5`) becomes zero, and one above [`MAX_SCALE`] is
    /// rounded to that, half away from zero.
    pub fn from_bigdecimal(value: BigDecimal) -> Numeric {
        let (int, scale) = value.into_bigint_and_exponent();
        let (int, scale) = match u16::try_from(scale) {
            Ok(scale) if scale <= MAX_SCALE => (int, scale),
            _ if scale < 0 => (
                BigDecimal::new(int, scale)
                    .with_scale(0)
                    .into_bigint_and_exponent()
                    .0,
                0,
            ),
            _ => {
                let rounded = BigDecimal::new(int, scale)
                    .with_scale_round(i64::from(MAX_SCALE), RoundingMode::HalfUp);
                (rounded.into_bigint_and_exponent().0, MAX_SCALE)
            }
        };
        let (sign, magnitude) = int.to_bytes_le();
        let mut bytes = Vec::with_capacity(3 + magnitude.len());
        bytes.push(if sign == Sign::Minus {
            NEGATIVE
        } else {
            POSITIVE
        });
        bytes.extend(scale.to_le_bytes());
        if sign != Sign::NoSign {
            bytes.extend(magnitude);
        }
        Numeric(bytes.into())
    }

    pub fn borrow(&self) -> NumericRef<'_> {
        NumericRef(&self.0)
    }
    /// The number as a decimal. None for NaN and the infinities.
    pub fn to_bigdecimal(&self) -> Option<BigDecimal> {
        self.borrow().to_bigdecimal()
    }
    pub fn is_nan(&self) -> bool {
        self.borrow().is_nan()
    }
    pub fn is_infinite(&self) -> bool {
        self.borrow().is_infinite()
    }
    /// The number rounded half away from zero to `scale` digits after the point, or padded to them.
    /// A negative scale rounds before the point. NaN and infinities stay.
    pub fn round(&self, scale: i32) -> Numeric {
        if let (Some(short), Ok(scale)) = (self.borrow().short(), u16::try_from(scale))
            && scale <= MAX_SCALE
            && let Some(rounded) = short.round(scale)
        {
            return rounded.into();
        }
        match self.to_bigdecimal() {
            Some(d) => {
                Numeric::from_bigdecimal(d.with_scale_round(i64::from(scale), RoundingMode::HalfUp))
            }
            None => self.clone(),
        }
    }
    /// The lowest power of ten that is above the absolute value. It counts the digits before the
    /// point of 12.3, and is -2 for 0.00123. None for zero, NaN and the infinities.
    pub fn magnitude(&self) -> Option<i64> {
        if let Some(short) = self.borrow().short() {
            return Some(i64::from(short.digits()?) - i64::from(short.scale));
        }
        let d = self.to_bigdecimal().filter(|d| !d.is_zero())?;
        Some(d.digits() as i64 - d.as_bigint_and_exponent().1)
    }
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<i64> for Numeric {
    fn from(v: i64) -> Numeric {
        Numeric::from(Short {
            value: v.into(),
            scale: 0,
        })
    }
}

impl<'a> NumericRef<'a> {
    pub fn from_bytes(bytes: &'a [u8]) -> Result<NumericRef<'a>> {
        let well_formed = match bytes {
            [NEG_INFINITY | INFINITY | NAN] => true,
            [NEGATIVE | POSITIVE, scale_low, scale_high, magnitude @ ..] => {
                u16::from_le_bytes([*scale_low, *scale_high]) <= MAX_SCALE
                    && magnitude.last() != Some(&0)
                    && (bytes[0] == POSITIVE || !magnitude.is_empty())
            }
            _ => false,
        };
        if well_formed {
            Ok(NumericRef(bytes))
        } else {
            Err(BlockError::corrupt("numeric value is malformed"))
        }
    }

    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
    pub fn to_numeric(self) -> Numeric {
        Numeric(self.0.into())
    }
    pub fn is_nan(self) -> bool {
        self.0[0] == NAN
    }
    pub fn is_infinite(self) -> bool {
        matches!(self.0[0], INFINITY | NEG_INFINITY)
    }
    /// Whether the number is less than zero, -Infinity included.
    pub fn is_negative(self) -> bool {
        matches!(self.0[0], NEGATIVE | NEG_INFINITY)
    }
    /// The digits after the point. None for NaN and the infinities.
    pub fn scale(self) -> Option<u16> {
        match self.0 {
            [NEGATIVE | POSITIVE, low, high, ..] => Some(u16::from_le_bytes([*low, *high])),
            _ => None,
        }
    }
    /// The number times `10^scale`, and the scale, if that has at most 15 bytes.
    pub fn to_i128(self) -> Option<(i128, u16)> {
        let scale = self.scale()?;
        let magnitude = &self.0[3..];
        let mut bytes = [0; 16];
        if magnitude.len() >= bytes.len() {
            return None;
        }
        bytes[..magnitude.len()].copy_from_slice(magnitude);
        let value = i128::from_le_bytes(bytes);
        Some((if self.0[0] == NEGATIVE { -value } else { value }, scale))
    }
    pub fn short(self) -> Option<Short> {
        self.to_i128().map(|(value, scale)| Short { value, scale })
    }
    /// The number as a decimal. None for NaN and the infinities.
    pub fn to_bigdecimal(self) -> Option<BigDecimal> {
        let sign = match self.0[0] {
            NEGATIVE => Sign::Minus,
            POSITIVE => Sign::Plus,
            _ => return None,
        };
        let scale = u16::from_le_bytes([self.0[1], self.0[2]]);
        let magnitude = BigUint::from_bytes_le(&self.0[3..]);
        Some(BigDecimal::new(
            BigInt::from_biguint(sign, magnitude),
            i64::from(scale),
        ))
    }
}

impl fmt::Display for NumericRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(short) = self.short()
            && let Some(Ok(text)) = short
                .text(&mut [0; short::TEXT_BYTES])
                .map(std::str::from_utf8)
        {
            return f.write_str(text);
        }
        match self.to_bigdecimal() {
            Some(d) => f.write_str(&d.to_plain_string()),
            None => f.write_str(match self.0[0] {
                NEG_INFINITY => "-Infinity",
                INFINITY => "Infinity",
                _ => "NaN",
            }),
        }
    }
}

impl FromStr for Numeric {
    type Err = ParseNumericError;

    fn from_str(text: &str) -> std::result::Result<Numeric, ParseNumericError> {
        let text = text.trim();
        if let Some(short) = Short::parse(text) {
            return Ok(short.into());
        }
        match text.to_ascii_lowercase().as_str() {
            "nan" => return Ok(Numeric::nan()),
            "infinity" | "inf" | "+infinity" | "+inf" => return Ok(Numeric::infinity()),
            "-infinity" | "-inf" => return Ok(Numeric::neg_infinity()),
            _ => {}
        }
        // This is stricter than the library, which takes underscores, too. The exponent is bounded
        // before it makes digits.
        let plain = text
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
        let exponent = text
            .split_once(['e', 'E'])
            .map_or(Ok(0), |(_, e)| e.parse::<i32>());
        if !plain || !exponent.is_ok_and(|e| e.unsigned_abs() <= MAX_INTEGER_DIGITS as u32) {
            return Err(ParseNumericError);
        }
        let value: BigDecimal = text.parse().map_err(|_| ParseNumericError)?;
        let (digits, scale) = (value.digits() as i64, value.as_bigint_and_exponent().1);
        if digits - scale > MAX_INTEGER_DIGITS as i64 || scale > i64::from(MAX_SCALE) {
            return Err(ParseNumericError);
        }
        Ok(Numeric::from_bigdecimal(value))
    }
}

impl Ord for NumericRef<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0[0].cmp(&other.0[0]).then_with(|| {
            if let (Some(a), Some(b)) = (self.short(), other.short())
                && let Some(order) = a.compare(b)
            {
                return order;
            }
            match (self.to_bigdecimal(), other.to_bigdecimal()) {
                (Some(a), Some(b)) => a.cmp(&b),
                _ => Ordering::Equal,
            }
        })
    }
}
impl PartialOrd for NumericRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for NumericRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for NumericRef<'_> {}
impl Hash for NumericRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Some(short) = self.short() {
            return short.normalized().hash(state);
        }
        match self.to_bigdecimal() {
            // Equal numbers may have as many bytes as there are zeros behind them.
            Some(d) => match d.normalized().into_bigint_and_exponent() {
                (int, exponent) if int.bits() < 120 => {
                    (i128::try_from(&int).unwrap_or_default(), exponent).hash(state);
                }
                long => long.hash(state),
            },
            None => self.0[0].hash(state),
        }
    }
}
impl fmt::Debug for NumericRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Ord for Numeric {
    fn cmp(&self, other: &Self) -> Ordering {
        self.borrow().cmp(&other.borrow())
    }
}
impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Numeric {
    fn eq(&self, other: &Self) -> bool {
        self.borrow() == other.borrow()
    }
}
impl Eq for Numeric {}
impl Hash for Numeric {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.borrow().hash(state);
    }
}
impl fmt::Debug for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.borrow(), f)
    }
}
impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.borrow(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(text: &str) -> Numeric {
        text.parse().unwrap_or_else(|_| panic!("{text}"))
    }

    #[test]
    fn text_keeps_its_scale() {
        for text in [
            "0",
            "1.50",
            "-0.001",
            "123456789012345678901234567890.12",
            "NaN",
            "Infinity",
            "-Infinity",
            "0.000",
        ] {
            assert_eq!(n(text).to_string(), text);
        }
        assert_eq!(n("1e5").to_string(), "100000");
        assert_eq!(n("1.5e-3").to_string(), "0.0015");
        for bad in ["", "1_0", "abc", "1e999999999", "--1", "."] {
            assert!(bad.parse::<Numeric>().is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_as_integers_with_a_scale() {
        let parts = |text: &str| n(text).borrow().to_i128();
        assert_eq!(parts("-1.50"), Some((-150, 2)));
        assert_eq!(parts("0.000"), Some((0, 3)));
        let most = (1_i128 << 120) - 1;
        assert_eq!(parts(&most.to_string()), Some((most, 0)));
        assert_eq!(parts(&(most + 1).to_string()), None);
        for special in ["NaN", "Infinity", "-Infinity"] {
            assert_eq!(parts(special), None);
            assert_eq!(n(special).borrow().scale(), None);
        }
        assert!(n("-Infinity").borrow().is_negative() && n("-0.1").borrow().is_negative());
        assert!(!n("NaN").borrow().is_negative() && !n("0").borrow().is_negative());
    }

    #[test]
    fn order_and_identity_ignore_the_scale() {
        let sorted = [
            "-Infinity",
            "-10",
            "-9.5",
            "0",
            "0.1",
            "1.50",
            "2",
            "10",
            "Infinity",
            "NaN",
        ];
        assert!(sorted.windows(2).all(|w| n(w[0]) < n(w[1])));
        assert_eq!(n("1.50"), n("1.5"));
        assert_eq!(n("NaN"), n("NaN"));
    }

    #[test]
    fn a_scale_beyond_the_limit_is_rounded() {
        let tiny = BigDecimal::new(15.into(), i64::from(MAX_SCALE) + 1);
        let rounded = Numeric::from_bigdecimal(tiny);
        assert_eq!(rounded.borrow().to_i128(), Some((2, MAX_SCALE)));
        assert!(NumericRef::from_bytes(rounded.as_bytes()).is_ok());
    }

    #[test]
    fn malformed_bytes_are_refused() {
        for bytes in [
            &[][..],
            &[9],
            &[NAN, 0],
            &[NEGATIVE, 0, 0],
            &[POSITIVE, 0, 0, 1, 0],
            &[POSITIVE, 255, 255, 1],
        ] {
            assert!(NumericRef::from_bytes(bytes).is_err(), "{bytes:?}");
        }
        let v = n("-12.5");
        assert_eq!(
            NumericRef::from_bytes(v.as_bytes()).unwrap().to_numeric(),
            v
        );
    }
}
