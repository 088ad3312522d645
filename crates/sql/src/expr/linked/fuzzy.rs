//! The functions of `fuzzystrmatch`: distances of Levenshtein, and Soundex. Metaphones are refused.

use block::value::{Datum, DatumRef};

use super::{Entry, entry, integer, text};
use crate::error::{Error, Result};
use crate::pgtype::IoSettings;

/// Characters of a text whose distance is computed: PostgreSQL's limit.
const MAX_CHARACTERS: usize = 255;
/// A letter and three digits.
const SOUNDEX: usize = 4;
/// The digits of the letters from A to Z.
const SOUNDEX_DIGITS: &[u8; 26] = b"01230120022455012623010202";

pub const ENTRIES: &[Entry] = &[
    entry("levenshtein", |v, _| distance(v, Costs::ONE, None)),
    entry("levenshtein_with_costs", |v, _| {
        distance(v, Costs::at(v, 2)?, None)
    }),
    entry("levenshtein_less_equal", |v, _| {
        distance(v, Costs::ONE, Some(integer(v, 2)?))
    }),
    entry("levenshtein_less_equal_with_costs", |v, _| {
        distance(v, Costs::at(v, 2)?, Some(integer(v, 5)?))
    }),
    entry("soundex", |v, _| {
        let code = soundex(text(v, 0)?);
        let letters = code.iter().filter(|b| **b != 0).map(|b| char::from(*b));
        Ok(Datum::Text(letters.collect()))
    }),
    entry("difference", |v, _| {
        let (a, b) = (soundex(text(v, 0)?), soundex(text(v, 1)?));
        let same = a.iter().zip(b).filter(|(a, b)| **a == *b).count();
        Ok(Datum::Int4(same as i32))
    }),
    entry("metaphone", refused),
    entry("dmetaphone", refused),
    entry("dmetaphone_alt", refused),
];

fn refused(_: &[DatumRef<'_>], _: &IoSettings) -> Result<Datum> {
    Err(Error::unsupported("metaphones"))
}

/// What it costs to put a character in, to take one out, and to put one in the place of another.
#[derive(Clone, Copy)]
struct Costs {
    insert: i64,
    delete: i64,
    replace: i64,
}

impl Costs {
    const ONE: Costs = Costs {
        insert: 1,
        delete: 1,
        replace: 1,
    };

    fn at(values: &[DatumRef<'_>], at: usize) -> Result<Costs> {
        Ok(Costs {
            insert: integer(values, at)?.into(),
            delete: integer(values, at + 1)?.into(),
            replace: integer(values, at + 2)?.into(),
        })
    }
}

/// The least cost of making the second text of the first. What is above `most`, if that is not
/// negative, is one above it.
fn distance(values: &[DatumRef<'_>], costs: Costs, most: Option<i32>) -> Result<Datum> {
    let letters = |at: usize| -> Result<Vec<char>> {
        let letters: Vec<char> = text(values, at)?.chars().collect();
        match letters.len() <= MAX_CHARACTERS {
            true => Ok(letters),
            false => {
                let message = format!(
                    "levenshtein argument exceeds maximum length of {MAX_CHARACTERS} characters"
                );
                Err(Error::new("22023", message))
            }
        }
    };
    let (from, to) = (letters(0)?, letters(1)?);
    let mut row: Vec<i64> = (0..=from.len() as i64).map(|n| n * costs.delete).collect();
    for (made, wanted) in (1_i64..).zip(&to) {
        let mut diagonal = row[0];
        row[0] = made * costs.insert;
        for (at, letter) in from.iter().enumerate() {
            let kept = match letter == wanted {
                true => diagonal,
                false => diagonal + costs.replace,
            };
            diagonal = row[at + 1];
            let inserted = diagonal + costs.insert;
            row[at + 1] = kept.min(inserted).min(row[at] + costs.delete);
        }
    }
    let found = row.last().copied().unwrap_or(0);
    let found = match most.map(i64::from) {
        Some(most) if most >= 0 && found > most => most + 1,
        _ => found,
    };
    let out_of_range = |_| Error::new("22003", "integer out of range");
    i32::try_from(found).map(Datum::Int4).map_err(out_of_range)
}

/// Four letters and digits; zeros, if the text has no letter.
fn soundex(text: &str) -> [u8; SOUNDEX] {
    let digit = |b: u8| match b.to_ascii_uppercase() {
        letter @ b'A'..=b'Z' => SOUNDEX_DIGITS[usize::from(letter - b'A')],
        other => other,
    };
    let mut code = [0; SOUNDEX];
    let bytes = text.as_bytes();
    let Some(first) = bytes.iter().position(u8::is_ascii_alphabetic) else {
        return code;
    };
    code = [b'0'; SOUNDEX];
    code[0] = bytes[first].to_ascii_uppercase();
    let mut count = 1;
    for pair in bytes[first..].windows(2) {
        let (before, this) = (digit(pair[0]), digit(pair[1]));
        if count < SOUNDEX && pair[1].is_ascii_alphabetic() && this != before && this != b'0' {
            code[count] = this;
            count += 1;
        }
    }
    code
}
