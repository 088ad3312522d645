//! `to_char` of numbers with `RN`: Roman numerals.

use bigdecimal::ToPrimitive;
use block::value::DatumRef;

use super::{Node, Template};
use crate::error::{Error, Result};
use crate::expr::arith;
use crate::types::SqlType;

/// Places of the numeral, which stands at their end.
const WIDTH: usize = 15;

pub fn write(value: DatumRef<'_>, template: &Template) -> Result<String> {
    let out_of_range = || arith::out_of_range(SqlType::Int4);
    let whole = match value {
        DatumRef::Float8(f) => {
            let f = f.round_ties_even();
            let fits = (-2_147_483_648.0..2_147_483_648.0).contains(&f);
            fits.then_some(f as i64).ok_or_else(out_of_range)?
        }
        DatumRef::Numeric(n) if n.is_nan() || n.is_infinite() => {
            let what = if n.is_nan() { "NaN" } else { "infinity" };
            let message = format!("cannot convert {what} to integer");
            return Err(Error::new("0A000", message));
        }
        DatumRef::Numeric(n) => {
            let whole = n.to_numeric().round(0).to_bigdecimal();
            let whole = whole.and_then(|n| n.to_i32());
            whole.ok_or_else(out_of_range)?.into()
        }
        other => {
            arith::integer(other).ok_or_else(|| Error::internal(format!("to_char of {other:?}")))?
        }
    };
    let numeral = numeral(whole);
    let mut out = String::new();
    for node in &template.nodes {
        match node {
            Node::Roman { upper } => {
                let shown = match upper {
                    true => numeral.clone(),
                    false => numeral.to_ascii_lowercase(),
                };
                match template.fill {
                    true => out.push_str(&shown),
                    false => out.push_str(&format!("{shown:>WIDTH$}")),
                }
            }
            Node::Literal(c) => out.push(*c),
            Node::Currency => out.push(' '),
            Node::Group | Node::Minus | Node::Plus if !template.fill => out.push(' '),
            _ => {}
        }
    }
    Ok(out)
}

/// Marks for what has no numeral.
fn numeral(mut n: i64) -> String {
    const PARTS: [(i64, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    if !(1..=3999).contains(&n) {
        return "#".repeat(WIDTH);
    }
    let mut out = String::new();
    for (value, letters) in PARTS {
        while n >= value {
            out.push_str(letters);
            n -= value;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::numeral;

    #[test]
    fn numerals() {
        for (n, text) in [
            (1, "I"),
            (485, "CDLXXXV"),
            (1994, "MCMXCIV"),
            (3999, "MMMCMXCIX"),
        ] {
            assert_eq!(numeral(n), text);
        }
        assert_eq!(numeral(0), "###############");
    }
}
