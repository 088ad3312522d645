//! Functions of angles and their kin, over doubles. What is not in a function's domain is 22003, where the C library would say NaN.

use super::arith::{computed, out_of_range};
use super::degrees::Degrees;
use crate::error::{Error, Result};
use crate::types::SqlType;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Angle {
    Sin,
    Cos,
    Tan,
    Cot,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Degrees,
    Radians,
    /// Of or as degrees.
    InDegrees(Degrees),
}

impl Angle {
    pub fn named(name: &str) -> Option<Angle> {
        Some(match name {
            "sin" => Angle::Sin,
            "cos" => Angle::Cos,
            "tan" => Angle::Tan,
            "cot" => Angle::Cot,
            "asin" => Angle::Asin,
            "acos" => Angle::Acos,
            "atan" => Angle::Atan,
            "sinh" => Angle::Sinh,
            "cosh" => Angle::Cosh,
            "tanh" => Angle::Tanh,
            "asinh" => Angle::Asinh,
            "acosh" => Angle::Acosh,
            "atanh" => Angle::Atanh,
            "degrees" => Angle::Degrees,
            "radians" => Angle::Radians,
            _ => return Degrees::named(name).map(Angle::InDegrees),
        })
    }

    pub fn of(self, x: f64) -> Result<f64> {
        let outside = match self {
            Angle::Sin | Angle::Cos | Angle::Tan | Angle::Cot => x.is_infinite(),
            Angle::Asin | Angle::Acos | Angle::Atanh => x.abs() > 1.0,
            Angle::Acosh => x < 1.0,
            _ => false,
        };
        if outside {
            return Err(Error::new("22003", "input is out of range"));
        }
        Ok(match self {
            Angle::Sin => x.sin(),
            Angle::Cos => x.cos(),
            Angle::Tan => x.tan(),
            Angle::Cot => 1.0 / x.tan(),
            Angle::Asin => x.asin(),
            Angle::Acos => x.acos(),
            Angle::Atan => x.atan(),
            Angle::Sinh => x.sinh(),
            Angle::Cosh => x.cosh(),
            Angle::Tanh => x.tanh(),
            Angle::Asinh => super::libm::asinh(x),
            Angle::Acosh => super::libm::acosh(x),
            Angle::Atanh => x.atanh(),
            Angle::InDegrees(of) => of.of(x)?,
            Angle::Degrees => {
                let degrees = x / (std::f64::consts::PI / 180.0);
                if degrees.is_infinite() && x.is_finite() {
                    return Err(out_of_range(SqlType::Float8));
                }
                degrees
            }
            Angle::Radians if x == 0.0 => x,
            Angle::Radians => computed(x * (std::f64::consts::PI / 180.0), x.is_finite())?,
        })
    }
}
