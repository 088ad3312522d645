//! The id of a statement: a number made of its text, in 13 characters, as Oracle's `SQL_ID`.

use crate::expr::md5;

/// Digits and letters that cannot be taken for others.
const LETTERS: &[u8; 32] = b"0123456789abcdfghjkmnpqrstuvwxyz";
const LENGTH: usize = 13;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct SqlId(u64);

impl SqlId {
    pub fn of(text: &str) -> SqlId {
        // The text ends with a zero byte, as it does in the field's own.
        let digest = md5::words(&[text.as_bytes(), &[0]].concat());
        SqlId(u64::from(digest[2]) << 32 | u64::from(digest[3]))
    }

    /// The lower half of the number: `hv`.
    pub fn hash(self) -> u32 {
        self.0 as u32
    }
}

impl std::fmt::Display for SqlId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let letter = |at: usize| char::from(LETTERS[(self.0 >> (5 * at)) as usize % 32]);
        let letters: String = (0..LENGTH).rev().map(letter).collect();
        f.write_str(&letters)
    }
}

#[cfg(test)]
mod tests {
    use super::SqlId;

    /// Ids and hashes that Oracle wrote into its own traces.
    #[test]
    fn ids_are_those_of_the_field() {
        for (text, id, hash) in [
            (
                "select value from v$diag_info where name = 'Default Trace File'",
                "0gjpt6cdt5vxb",
                462_614_443,
            ),
            (
                "select host_name from v$instance",
                "6zu36a7z2bsjf",
                4_263_895_598,
            ),
            (
                "select id, data from rowcache_test",
                "4y53369cbbaqf",
                1_488_300_750,
            ),
        ] {
            let known = SqlId::of(text);
            assert_eq!(
                (known.to_string().as_str(), known.hash()),
                (id, hash),
                "{text}"
            );
        }
    }
}
