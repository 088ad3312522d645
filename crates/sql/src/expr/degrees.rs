//! Functions of angles in degrees. They are exact where the angle is: `sind(30)` is 0.5. So each is
//! computed for small angles alone, against its own value at the angle whose result is known.

use std::f64::consts::PI;

use crate::error::{Error, Result};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Degrees {
    Sin,
    Cos,
    Tan,
    Cot,
    Asin,
    Acos,
    Atan,
}

fn radians(degrees: f64) -> f64 {
    degrees * (PI / 180.0)
}

fn sin_to_30(x: f64) -> f64 {
    radians(x).sin() / radians(30.0).sin() / 2.0
}

fn cos_to_60(x: f64) -> f64 {
    1.0 - (1.0 - radians(x).cos()) / (1.0 - radians(60.0).cos()) / 2.0
}

/// Of angles from 0 to 90.
fn sin_to_90(x: f64) -> f64 {
    match x <= 30.0 {
        true => sin_to_30(x),
        false => cos_to_60(90.0 - x),
    }
}

fn cos_to_90(x: f64) -> f64 {
    match x <= 60.0 {
        true => cos_to_60(x),
        false => sin_to_30(90.0 - x),
    }
}

fn asin_to_1(x: f64) -> f64 {
    match x <= 0.5 {
        true => x.asin() / 0.5_f64.asin() * 30.0,
        false => 90.0 - x.acos() / 0.5_f64.acos() * 60.0,
    }
}

fn acos_to_1(x: f64) -> f64 {
    match x <= 0.5 {
        true => 90.0 - x.asin() / 0.5_f64.asin() * 30.0,
        false => x.acos() / 0.5_f64.acos() * 60.0,
    }
}

/// The angle of a point, as of `atan2`.
pub fn atan2(y: f64, x: f64) -> f64 {
    y.atan2(x) / 1.0_f64.atan() * 45.0
}

impl Degrees {
    pub fn named(name: &str) -> Option<Degrees> {
        Some(match name {
            "sind" => Degrees::Sin,
            "cosd" => Degrees::Cos,
            "tand" => Degrees::Tan,
            "cotd" => Degrees::Cot,
            "asind" => Degrees::Asin,
            "acosd" => Degrees::Acos,
            "atand" => Degrees::Atan,
            _ => return None,
        })
    }

    pub fn of(self, x: f64) -> Result<f64> {
        let outside = match self {
            Degrees::Sin | Degrees::Cos | Degrees::Tan | Degrees::Cot => x.is_infinite(),
            Degrees::Asin | Degrees::Acos => x.abs() > 1.0,
            Degrees::Atan => false,
        };
        if outside {
            return Err(Error::new("22003", "input is out of range"));
        }
        if x.is_nan() {
            return Ok(x);
        }
        Ok(match self {
            Degrees::Asin if x >= 0.0 => asin_to_1(x),
            Degrees::Asin => -asin_to_1(-x),
            Degrees::Acos if x >= 0.0 => acos_to_1(x),
            Degrees::Acos => 90.0 + asin_to_1(-x),
            Degrees::Atan => x.atan() / 1.0_f64.atan() * 45.0,
            _ => self.of_angle(x % 360.0),
        })
    }

    /// Of an angle within one turn, by the one from 0 to 90 that has the same, but for the sign.
    fn of_angle(self, x: f64) -> f64 {
        let odd = self != Degrees::Cos;
        let (mut x, mut sign) = (x.abs(), if x < 0.0 && odd { -1.0 } else { 1.0 });
        if x > 180.0 {
            x = 360.0 - x;
            sign = if odd { -sign } else { sign };
        }
        if x > 90.0 {
            x = 180.0 - x;
            sign = if self == Degrees::Sin { sign } else { -sign };
        }
        let tan = |x: f64| sin_to_90(x) / cos_to_90(x);
        let cot = |x: f64| cos_to_90(x) / sin_to_90(x);
        let result = match self {
            Degrees::Sin => sin_to_90(x),
            Degrees::Cos => cos_to_90(x),
            Degrees::Tan => tan(x) / tan(45.0),
            _ => cot(x) / cot(45.0),
        };
        match (self, sign * result) {
            // No zero of tangents is negative.
            (Degrees::Tan | Degrees::Cot, 0.0) => 0.0,
            (_, result) => result,
        }
    }
}
