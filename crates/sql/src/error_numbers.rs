//! Oracle's numbers of errors: what SQL trace writes, and `SQLCODE` gives.

use crate::error::Error;

/// Errors that have a number of their own, by their SQLSTATE.
const NUMBERS: [(&str, u16); 22] = [
    ("21000", 1427),
    ("22001", 12_899),
    ("22003", 1426),
    ("22012", 1476),
    ("22P02", 1722),
    ("23502", 1400),
    ("23503", 2291),
    ("23505", 1),
    ("23514", 2290),
    ("25006", 1456),
    ("40001", 8177),
    ("40P01", 60),
    ("42501", 1031),
    ("42601", 900),
    ("42703", 904),
    ("42P01", 942),
    ("42P07", 955),
    ("55P03", 54),
    ("57014", 1013),
    ("72000", 1555),
    ("P0002", 1403),
    ("P0003", 1422),
];

/// The first number of those that applications give to errors of their own.
const OTHER_NUMBER: u16 = 20_000;

fn known(sqlstate: &str) -> Option<u16> {
    let known = NUMBERS.iter().find(|(state, _)| *state == sqlstate);
    known.map(|(_, number)| *number)
}

/// The number of a SQLSTATE, or [`OTHER_NUMBER`].
pub fn of_state(sqlstate: &str) -> u16 {
    known(sqlstate).unwrap_or(OTHER_NUMBER)
}

/// The SQLSTATE that has a number.
pub fn state_of(number: i32) -> Option<&'static str> {
    let known = NUMBERS.iter().find(|(_, n)| -i32::from(*n) == number);
    match known {
        Some((state, _)) => Some(state),
        None if number == NO_DATA => Some("P0002"),
        None => None,
    }
}

/// `SQLCODE` of `NO_DATA_FOUND`, the only one that is positive.
const NO_DATA: i32 = 100;

/// The number of an error, if it has one: of one with an application's own number this number.
pub fn number(error: &Error) -> Option<i32> {
    let number = match error.sqlstate() {
        "P0002" => return Some(NO_DATA),
        "P0001" => {
            let said = error.message().strip_prefix("ORA-");
            said.and_then(|said| said.split(':').next()?.parse::<u16>().ok())
        }
        state => known(state),
    };
    number.map(|n| -i32::from(n))
}

/// What `SQLCODE` is of an error.
pub fn sqlcode(error: &Error) -> i32 {
    number(error).unwrap_or(-i32::from(OTHER_NUMBER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_numbers_and_numbers_errors() {
        assert_eq!(of_state("42P01"), 942);
        assert_eq!(of_state("XX000"), OTHER_NUMBER);
        assert!(NUMBERS.is_sorted() && NUMBERS.iter().all(|(state, _)| state.len() == 5));
        assert_eq!(state_of(-1476), Some("22012"));
        assert_eq!(state_of(-1403), Some("P0002"));
        assert_eq!(state_of(100), Some("P0002"));
        assert_eq!(state_of(-20_001), None);
    }

    #[test]
    fn applications_have_their_own_numbers() {
        let error = |state: &'static str, message: &str| Error::new(state, message);
        assert_eq!(sqlcode(&error("P0001", "ORA-20001: no")), -20_001);
        assert_eq!(sqlcode(&error("P0001", "no")), -20_000);
        assert_eq!(number(&error("P0001", "no")), None);
        assert_eq!(number(&error("22007", "no date")), None);
        assert_eq!(number(&error("P0001", "ORA-20000: no")), Some(-20_000));
        assert_eq!(sqlcode(&error("P0002", "query returned no rows")), 100);
        assert_eq!(sqlcode(&error("23505", "duplicate")), -1);
    }
}
