//! Collations: in which order strings are, and whose rules of capitals they follow.
//!
//! **Invariants.**
//! - Two strings are equal if their bytes are, whatever the collation. So keys, groups, hashes and
//!   joins by equality need none.
//! - A collation that is not that of the bytes works through keys ([`Collation::key`]), which
//!   compare as bytes: whoever compares the order of strings compares those.

mod derived;
mod locales;

use std::sync::{LazyLock, OnceLock};

use icu_collator::options::CollatorOptions;
use icu_collator::{Collator, CollatorBorrowed};
use icu_locale_core::Locale;

use crate::error::{Error, Result};

pub use derived::{Derived, apart, collected};

/// A collation, by its object id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Collation(u32);

/// Those by bytes, with their object ids, names and encodings.
const BY_BYTES: [(u32, &str, i32); 5] = [
    (100, "default", -1),
    (950, "C", -1),
    (951, "POSIX", -1),
    (12_340, "ucs_basic", 6),
    (12_341, "C.utf8", 6),
];
/// The object id of the collation of the first locale; the others follow.
const FIRST_LOCALE: u32 = 12_342;
/// What the name of a locale's collation ends with.
const SUFFIX: &str = "-x-icu";

static LOCALES: LazyLock<Vec<&str>> =
    LazyLock::new(|| locales::LOCALES.split_whitespace().collect());

/// The collators of the locales, each made when it is first needed.
static COLLATORS: LazyLock<Vec<OnceLock<CollatorBorrowed<'static>>>> =
    LazyLock::new(|| LOCALES.iter().map(|_| OnceLock::new()).collect());

impl Collation {
    pub const DEFAULT: Collation = Collation(100);
    pub const C: Collation = Collation(950);

    /// The collation of a name of `pg_catalog`.
    pub fn named(name: &str) -> Option<Collation> {
        let by_bytes = BY_BYTES.iter().find(|(_, known, _)| *known == name);
        if let Some((oid, ..)) = by_bytes {
            return Some(Collation(*oid));
        }
        let locale = name.strip_suffix(SUFFIX)?;
        let at = LOCALES.iter().position(|known| *known == locale)?;
        Some(Collation(FIRST_LOCALE + at as u32))
    }

    pub fn of_oid(oid: u32) -> Option<Collation> {
        Collation::all().find(|c| c.0 == oid)
    }

    /// All that there are.
    pub fn all() -> impl Iterator<Item = Collation> {
        let locales = (FIRST_LOCALE..).zip(LOCALES.iter()).map(|(oid, _)| oid);
        let by_bytes = BY_BYTES.iter().map(|(oid, ..)| *oid);
        by_bytes.chain(locales).map(Collation)
    }

    pub fn oid(self) -> u32 {
        self.0
    }

    pub fn name(self) -> String {
        match (self.locale(), BY_BYTES.iter().find(|c| c.0 == self.0)) {
            (Some(locale), _) => format!("{locale}{SUFFIX}"),
            (None, Some((_, name, _))) => name.to_string(),
            (None, None) => self.0.to_string(),
        }
    }

    /// The number of the encoding that it is for; -1 for all.
    pub fn encoding(self) -> i32 {
        let found = BY_BYTES.iter().find(|c| c.0 == self.0);
        found.map_or(-1, |(_, _, encoding)| *encoding)
    }

    /// The locale whose rules it follows.
    pub fn locale(self) -> Option<&'static str> {
        let at = self.0.checked_sub(FIRST_LOCALE)?;
        LOCALES.get(at as usize).copied()
    }

    /// Whether strings are in the order of their bytes.
    pub fn is_by_bytes(self) -> bool {
        self.0 < FIRST_LOCALE
    }

    /// Whether only letters of ASCII have capitals.
    pub fn is_ascii(self) -> bool {
        matches!(self.0, 950 | 951 | 12_340)
    }

    /// Bytes that compare as the string does. Strings that the locale calls equal are in the order
    /// of their own bytes, which follow the locale's key, and are found behind the first zero.
    pub fn key(self, text: &str) -> Result<Vec<u8>> {
        let mut key = Vec::with_capacity(text.len() * 3 + 4);
        if let Some(at) = self.0.checked_sub(FIRST_LOCALE) {
            let Ok(()) = collator(at as usize)?.write_sort_key_to(text, &mut key);
            key.push(0);
        }
        key.extend_from_slice(text.as_bytes());
        Ok(key)
    }

    /// The string of a key.
    pub fn text_of_key(self, key: &[u8]) -> Result<&str> {
        let text = match self.is_by_bytes() {
            true => key,
            false => {
                let end = memchr::memchr(0, key);
                let end =
                    end.ok_or_else(|| Error::internal("a key of a collation without text"))?;
                &key[end + 1..]
            }
        };
        std::str::from_utf8(text).map_err(|_| Error::internal("a key of no text"))
    }

    /// A string in small letters.
    pub fn lower(self, text: &str) -> String {
        match (self.locale(), self.is_ascii()) {
            (_, true) => text.to_ascii_lowercase(),
            (Some(locale), _) if has_dotless_i(locale) => {
                let dotless = text.replace("I\u{307}", "i").replace('I', "ı");
                dotless.replace('İ', "i").to_lowercase()
            }
            _ => text.to_lowercase(),
        }
    }

    /// A string in capitals.
    pub fn upper(self, text: &str) -> String {
        match (self.locale(), self.is_ascii()) {
            (_, true) => text.to_ascii_uppercase(),
            (Some(locale), _) if has_dotless_i(locale) => text.replace('i', "İ").to_uppercase(),
            _ => text.to_uppercase(),
        }
    }
}

/// Whether a language has an `i` with and one without a dot.
fn has_dotless_i(locale: &str) -> bool {
    matches!(locale.split('-').next(), Some("tr" | "az"))
}

fn collator(at: usize) -> Result<&'static CollatorBorrowed<'static>> {
    let missing = || Error::internal("a collation that is not there");
    let (slot, name) = COLLATORS.get(at).zip(LOCALES.get(at)).ok_or_else(missing)?;
    if let Some(made) = slot.get() {
        return Ok(made);
    }
    let locale: Locale = name
        .parse()
        .map_err(|e| Error::internal(format!("locale {name}: {e}")))?;
    let made = Collator::try_new((&locale).into(), CollatorOptions::default())
        .map_err(|e| Error::internal(format!("collation {name}: {e}")))?;
    Ok(slot.get_or_init(|| made))
}

/// The error of a name that no collation has.
pub fn missing(name: &str) -> Error {
    let message = format!("collation \"{name}\" for encoding \"UTF8\" does not exist");
    Error::new("42704", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(collation: &str, words: &[&str]) -> Vec<String> {
        let collation = Collation::named(collation).unwrap();
        let mut keys: Vec<Vec<u8>> = words.iter().map(|w| collation.key(w).unwrap()).collect();
        keys.sort();
        let texts = keys.iter().map(|k| collation.text_of_key(k).unwrap());
        texts.map(str::to_string).collect()
    }

    /// What PostgreSQL 15 with ICU 72 answers.
    #[test]
    fn orders_are_those_of_icu() {
        let words = ["z", "ä", "a", "B", "A", "b", "ö", "o"];
        assert_eq!(
            sorted("C", &words),
            ["A", "B", "a", "b", "o", "z", "ä", "ö"]
        );
        let root = ["a", "A", "ä", "b", "B", "o", "ö", "z"];
        assert_eq!(sorted("und-x-icu", &words), root);
        assert_eq!(sorted("de-x-icu", &words), root);
        let swedish = ["a", "A", "b", "B", "o", "z", "ä", "ö"];
        assert_eq!(sorted("sv-x-icu", &words), swedish);
    }

    /// A name, and with it an object id, must not be lost or come twice.
    #[test]
    fn each_collation_is_found_by_name_and_number() {
        let mut count = 0;
        for c in Collation::all() {
            assert_eq!(Collation::named(&c.name()), Some(c));
            assert_eq!(Collation::of_oid(c.oid()), Some(c));
            assert!(c.key("a").is_ok(), "{}", c.name());
            count += 1;
        }
        assert_eq!(count, 811);
    }

    #[test]
    fn capitals() {
        let of = |name: &str| Collation::named(name).unwrap();
        assert_eq!(of("C").upper("äß"), "äß");
        assert_eq!(of("de-x-icu").upper("äß"), "ÄSS");
        assert_eq!(of("tr-x-icu").upper("i"), "İ");
        assert_eq!(of("tr-x-icu").lower("Iİ"), "ıi");
    }
}
