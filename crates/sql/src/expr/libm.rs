//! Functions of doubles whose last digit differs between libraries of mathematics, as the C library
//! of GNU computes them, which PostgreSQL uses.

/// The cube root: an estimate by a polynomial, and one step of Halley's method.
pub fn cbrt(x: f64) -> f64 {
    const CBRT_2: f64 = 1.259_921_049_894_873_2;
    const CBRT_4: f64 = 1.587_401_051_968_199_6;
    const FACTORS: [f64; 5] = [1.0 / CBRT_4, 1.0 / CBRT_2, 1.0, CBRT_2, CBRT_4];
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let (m, exponent) = parts(x.abs());
    let u = 0.354_895_765_043_919_84
        + ((1.508_191_937_815_849
            - ((2.114_994_941_673_713
                - ((2.446_931_225_635_344_4
                    - ((1.834_692_774_836_130_8
                        - (0.784_932_344_976_639_2 - 0.145_263_899_385_486_37 * m) * m)
                        * m))
                    * m))
                * m))
            * m);
    let cube = u * u * u;
    let factor = FACTORS[(2 + exponent % 3) as usize];
    let root = u * (cube + 2.0 * m) / (2.0 * cube + m) * factor;
    // The exponent of a root is never that of a number too small to be written in full.
    (root * 2_f64.powi(exponent / 3)).copysign(x)
}

/// A positive number as one from 0.5 to 1 and a power of two.
fn parts(x: f64) -> (f64, i32) {
    const TO_NORMAL: f64 = 18_014_398_509_481_984.0;
    let (x, less) = match x < f64::MIN_POSITIVE {
        true => (x * TO_NORMAL, 54),
        false => (x, 0),
    };
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i32 - 1022;
    let mantissa = f64::from_bits(bits & 0x000f_ffff_ffff_ffff | 0x3fe0_0000_0000_0000);
    (mantissa, exponent - less)
}

/// From so much on, a number squared and one more is the number squared.
const LARGE: f64 = 268_435_456.0;

pub fn acosh(x: f64) -> f64 {
    if x >= LARGE {
        return x.ln() + std::f64::consts::LN_2;
    }
    if x > 2.0 {
        return (2.0 * x - 1.0 / (x + (x * x - 1.0).sqrt())).ln();
    }
    let t = x - 1.0;
    (t + (2.0 * t + t * t).sqrt()).ln_1p()
}

pub fn asinh(x: f64) -> f64 {
    let size = x.abs();
    if size < 1.0 / LARGE || !x.is_finite() {
        return x;
    }
    let result = if size > LARGE {
        size.ln() + std::f64::consts::LN_2
    } else if size > 2.0 {
        (2.0 * size + 1.0 / ((size * size + 1.0).sqrt() + size)).ln()
    } else {
        let t = size * size;
        (size + t / (1.0 + (1.0 + t).sqrt())).ln_1p()
    };
    result.copysign(x)
}

#[cfg(test)]
mod tests {
    /// Values of PostgreSQL 15 on x86-64 Linux.
    #[test]
    fn last_digits_are_those_of_the_c_library() {
        for (x, root) in [
            (27.0, 3.0000000000000004),
            (100.0, 4.641588833612778),
            (59.5, 3.9039626608898548),
            (-2.25, -1.3103706971044484),
            (1e-300, 1e-100),
        ] {
            assert_eq!(super::cbrt(x), root, "{x}");
        }
        assert_eq!(super::acosh(100.0), 5.298292365610484);
        assert_eq!(super::acosh(1e300), 691.4686750787736);
        assert_eq!(super::asinh(1e300), 691.4686750787736);
    }
}
