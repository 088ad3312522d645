//! Numbers that an `i128` and a scale hold, which is nearly every one: their text, order and
//! rounding without numbers of any size. What does not fit here goes the long way, with the same
//! answers.

use std::cmp::Ordering;

use super::{MAX_SCALE, NEGATIVE, Numeric, POSITIVE};

/// The most decimal digits that are looked at here. Their number has at most 15 bytes, as
/// [`super::NumericRef::to_i128`] gives it.
const MAX_DIGITS: usize = 36;

/// `value / 10^scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    pub value: i128,
    pub scale: u16,
}

/// Powers of ten up to that of [`MAX_DIGITS`].
const POWERS: [i128; MAX_DIGITS + 1] = {
    let mut powers = [1; MAX_DIGITS + 1];
    let mut at = 1;
    while at <= MAX_DIGITS {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

fn power(of: u16) -> Option<i128> {
    POWERS.get(usize::from(of)).copied()
}

impl Short {
    /// A text of one sign at most, digits, and a point perhaps. `None`: it is something else, or
    /// has more digits.
    pub fn parse(text: &str) -> Option<Short> {
        let (negative, digits) = match text.as_bytes() {
            [b'-', digits @ ..] => (true, digits),
            [b'+', digits @ ..] => (false, digits),
            digits => (false, digits),
        };
        if digits.len() > MAX_DIGITS + 1 {
            return None;
        }
        let (mut value, mut seen, mut point) = (0_i128, 0_usize, None);
        for b in digits {
            match b {
                b'0'..=b'9' => {
                    value = value * 10 + i128::from(b - b'0');
                    seen += 1;
                }
                b'.' if point.is_none() => point = Some(seen),
                _ => return None,
            }
        }
        // A point without a digit on both sides is left to who knows what that means.
        let scale = match point {
            Some(0) => return None,
            Some(at) if at == seen => return None,
            Some(at) => seen - at,
            None => 0,
        };
        (1..=MAX_DIGITS).contains(&seen).then_some(Short {
            value: if negative { -value } else { value },
            scale: scale as u16,
        })
    }

    /// The bytes of the text. `None`: the scale is beyond what is done here.
    pub fn text(self, buffer: &mut [u8; TEXT_BYTES]) -> Option<&[u8]> {
        let scale = usize::from(self.scale);
        if scale > MAX_DIGITS {
            return None;
        }
        let mut at = buffer.len();
        let mut rest = self.value.unsigned_abs();
        let mut written = 0;
        // Digits after the point, the point, and at least one before it.
        while rest > 0 || written <= scale {
            if written == scale && scale > 0 {
                at -= 1;
                buffer[at] = b'.';
            }
            let digit = match u64::try_from(rest) {
                Ok(small) => {
                    rest = u128::from(small / 10);
                    small % 10
                }
                Err(_) => {
                    let digit = rest % 10;
                    rest /= 10;
                    digit as u64
                }
            };
            at -= 1;
            buffer[at] = b'0' + digit as u8;
            written += 1;
        }
        if self.value < 0 {
            at -= 1;
            buffer[at] = b'-';
        }
        Some(&buffer[at..])
    }

    /// Rounded half away from zero to so many digits after the point, or padded to them.
    pub fn round(self, scale: u16) -> Option<Short> {
        let value = match scale.checked_sub(self.scale) {
            Some(more) => self.value.checked_mul(power(more)?)?,
            None => {
                let unit = power(self.scale - scale)?;
                let (whole, rest) = (self.value / unit, self.value % unit);
                // The unit is even, so its half is exact.
                match rest.abs() >= unit / 2 {
                    true => whole + self.value.signum(),
                    false => whole,
                }
            }
        };
        Some(Short { value, scale })
    }

    /// How many decimal digits the absolute value without its point has; none for zero.
    pub fn digits(self) -> Option<u32> {
        self.value.unsigned_abs().checked_ilog10().map(|n| n + 1)
    }

    /// Both as whole numbers of the finer one's scale.
    fn aligned(self, other: Short) -> Option<(i128, i128, u16)> {
        let scale = self.scale.max(other.scale);
        let at = |n: Short| n.value.checked_mul(power(scale - n.scale)?);
        Some((at(self)?, at(other)?, scale))
    }

    pub fn plus(self, other: Short) -> Option<Short> {
        let (a, b, scale) = self.aligned(other)?;
        let value = a.checked_add(b)?;
        Some(Short { value, scale })
    }

    pub fn minus(self, other: Short) -> Option<Short> {
        let (a, b, scale) = self.aligned(other)?;
        let value = a.checked_sub(b)?;
        Some(Short { value, scale })
    }

    pub fn times(self, other: Short) -> Option<Short> {
        let value = self.value.checked_mul(other.value)?;
        let scale = self.scale.checked_add(other.scale)?;
        (scale <= MAX_SCALE).then_some(Short { value, scale })
    }

    /// The quotient rounded half away from zero to so many digits after the point. `None` also if
    /// the other number is zero.
    pub fn divide(self, other: Short, scale: u16) -> Option<Short> {
        let shift = i32::from(scale) + i32::from(other.scale) - i32::from(self.scale);
        let unit = power(u16::try_from(shift.unsigned_abs()).ok()?)?;
        let (numerator, denominator) = match shift >= 0 {
            true => (self.value.checked_mul(unit)?, other.value),
            false => (self.value, other.value.checked_mul(unit)?),
        };
        let (whole, rest) = (
            numerator.checked_div(denominator)?,
            numerator.checked_rem(denominator)?,
        );
        let up = rest.unsigned_abs().checked_mul(2)? >= denominator.unsigned_abs();
        let away = numerator.signum() * denominator.signum();
        let value = if up { whole.checked_add(away)? } else { whole };
        Some(Short { value, scale })
    }

    /// The place of the first digit in groups of four around the point, and the group's value.
    /// Zero's first group is the one before the point.
    pub fn leading_group(self) -> Option<(i64, i64)> {
        let Some(digits) = self.digits() else {
            return Some((0, 0));
        };
        let before_point = i64::from(digits) - i64::from(self.scale);
        let weight = (before_point - 1).div_euclid(4);
        let width = (before_point - 1).rem_euclid(4) as u32 + 1;
        let value = self.value.unsigned_abs();
        let group = match digits.checked_sub(width) {
            Some(more) => value / power(more as u16)?.unsigned_abs(),
            None => value * power((width - digits) as u16)?.unsigned_abs(),
        };
        Some((weight, group as i64))
    }

    /// The nearest float, if whole numbers that floats have exactly lead to it.
    pub fn to_f64(self) -> Option<f64> {
        const EXACT: i128 = 1 << f64::MANTISSA_DIGITS;
        const EXACT_POWER: u16 = 22;
        let fits = self.value.abs() <= EXACT && self.scale <= EXACT_POWER;
        fits.then(|| self.value as f64 / 10_f64.powi(self.scale.into()))
    }

    pub fn compare(self, other: Short) -> Option<Ordering> {
        let (a, b, _) = self.aligned(other)?;
        Some(a.cmp(&b))
    }

    /// The number without zeros at its end, and its exponent: the same for all that are equal.
    pub fn normalized(self) -> (i128, i64) {
        let (mut value, mut scale) = (self.value, i64::from(self.scale));
        if value == 0 {
            return (0, 0);
        }
        while value % 10 == 0 {
            value /= 10;
            scale -= 1;
        }
        (value, scale)
    }
}

/// Sign, a digit before the point, the point, and the digits of the largest `i128`.
pub const TEXT_BYTES: usize = 3 + 39 + MAX_DIGITS;

impl From<Short> for Numeric {
    fn from(n: Short) -> Numeric {
        let magnitude = n.value.unsigned_abs();
        let used = 16 - (magnitude.leading_zeros() / 8) as usize;
        let mut bytes = [0; 19];
        bytes[0] = if n.value < 0 { NEGATIVE } else { POSITIVE };
        bytes[1..3].copy_from_slice(&n.scale.to_le_bytes());
        bytes[3..].copy_from_slice(&magnitude.to_le_bytes());
        Numeric(bytes[..3 + used].into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::str::FromStr;

    use bigdecimal::{BigDecimal, RoundingMode};

    fn shorts() -> impl Strategy<Value = Short> {
        let value = prop_oneof![
            Just(0_i128),
            -1_000_i128..1_000,
            (0_u32..120).prop_flat_map(|bits| -(1_i128 << bits)..(1_i128 << bits)),
        ];
        (value, 0_u16..45).prop_map(|(value, scale)| Short { value, scale })
    }

    fn long(n: Short) -> BigDecimal {
        BigDecimal::new(n.value.into(), n.scale.into())
    }

    proptest! {
        /// The short way and the long way agree, wherever the short way has an answer.
        #[test]
        fn the_ways_agree(a in shorts(), b in shorts(), scale in 0_u16..45) {
            let made = Numeric::from(a);
            let wanted = Numeric::from_bigdecimal(long(a));
            prop_assert_eq!(made.as_bytes(), wanted.as_bytes());
            prop_assert_eq!(made.borrow().to_i128(), Some((a.value, a.scale)));
            let text = long(a).to_plain_string();
            if let Some(short) = a.text(&mut [0; TEXT_BYTES]) {
                prop_assert_eq!(std::str::from_utf8(short), Ok(text.as_str()));
            }
            if let Some(parsed) = Short::parse(&text) {
                prop_assert_eq!(parsed, a);
            }
            if let Some(rounded) = a.round(scale) {
                let wanted = long(a).with_scale_round(i64::from(scale), RoundingMode::HalfUp);
                prop_assert_eq!(long(rounded).into_bigint_and_exponent(), wanted.into_bigint_and_exponent());
            }
            if let Some(order) = a.compare(b) {
                prop_assert_eq!(order, long(a).cmp(&long(b)));
            }
            if let Some(digits) = a.digits() {
                prop_assert_eq!(u64::from(digits), long(a).digits());
            }
            let float = |n: Short| long(n).to_string().parse::<f64>();
            if let Some(near) = a.to_f64() {
                prop_assert_eq!(Ok(near), float(a));
            }
            for (made, wanted) in [
                (a.plus(b), long(a) + long(b)),
                (a.minus(b), long(a) - long(b)),
                (a.times(b), long(a) * long(b)),
            ] {
                if let Some(made) = made {
                    prop_assert_eq!(long(made), wanted);
                }
            }
            let (value, exponent) = a.normalized();
            prop_assert_eq!(long(a).normalized().into_bigint_and_exponent(), (value.into(), exponent));
        }

        /// Every text that is parsed the short way is parsed the same the long way.
        #[test]
        fn texts_are_parsed_alike(text in "[-+]{0,2}[0-9]{0,20}\\.{0,2}[0-9]{0,20}") {
            if let Some(short) = Short::parse(&text) {
                let wanted = BigDecimal::from_str(&text).expect("a number");
                prop_assert_eq!(long(short).into_bigint_and_exponent(), wanted.into_bigint_and_exponent());
            }
        }
    }

    #[test]
    fn the_ends_are_looked_at() {
        let nines = "9".repeat(MAX_DIGITS);
        let most = Short::parse(&nines).expect("so many digits");
        assert_eq!(Numeric::from(most).to_string(), nines);
        assert_eq!(Short::parse(&format!("{nines}9")), None);
        for odd in ["", "-", ".", "1.", ".5", "1e5", "--1", "1_0", "NaN"] {
            assert_eq!(Short::parse(odd), None, "{odd}");
        }
    }
}
