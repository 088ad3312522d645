//! Names of objects that were not given one: `table_column_suffix`, no longer than names are.

use crate::bind::names::MAX_NAME_BYTES;

/// What such a name is made of.
#[derive(Clone, Copy)]
pub struct DefaultName<'a> {
    /// The table, mostly.
    pub first: &'a str,
    /// The columns.
    pub second: Option<&'a str>,
    pub suffix: &'a str,
}

impl DefaultName<'_> {
    /// The first of them that is free: without a number, or with one behind it.
    pub fn free(&self, is_free: impl Fn(&str) -> bool) -> String {
        let numbered = (1u64..).map(|n| self.ending(&format!("{}{n}", self.suffix)));
        std::iter::once(self.ending(self.suffix))
            .chain(numbered)
            .find(|name| is_free(name))
            .unwrap_or_default()
    }

    /// As PostgreSQL makes it: the suffix is whole, and of the others the longer one is cut.
    fn ending(&self, suffix: &str) -> String {
        let second = self.second.unwrap_or_default();
        let joints = 1 + usize::from(self.second.is_some());
        let room = MAX_NAME_BYTES.saturating_sub(suffix.len() + joints);
        let (mut one, mut two) = (self.first.len(), second.len());
        while one + two > room {
            match one > two {
                true => one -= 1,
                false => two -= 1,
            }
        }
        let first = cut(self.first, one);
        match self.second {
            Some(_) => format!("{first}_{}_{suffix}", cut(second, two)),
            None => format!("{first}_{suffix}"),
        }
    }
}

/// So many bytes of a text, or as many fewer as a character needs to stay whole.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::DefaultName;

    #[test]
    fn the_longer_part_is_cut() {
        let long = "x".repeat(80);
        let name = |first, second, suffix, taken: &[&str]| {
            let name = DefaultName {
                first,
                second,
                suffix,
            };
            name.free(|n| !taken.contains(&n))
        };
        assert_eq!(name("t", Some("a"), "key", &[]), "t_a_key");
        assert_eq!(name("t", None, "pkey", &["t_pkey"]), "t_pkey1");
        let x = |n: usize| "x".repeat(n);
        let of_both = format!("{}_{}_seq", x(29), x(29));
        assert_eq!(name(&long, Some(&long), "seq", &[]), of_both);
        assert_eq!(
            name(&long, Some("ab"), "seq", &[]),
            format!("{}_ab_seq", x(56))
        );
        let second = name(&long, Some("ab"), "seq", &[&format!("{}_ab_seq", x(56))]);
        assert_eq!(second, format!("{}_ab_seq1", x(55)));
        let wide = "é".repeat(40);
        assert_eq!(
            name(&wide, None, "pkey", &[]),
            format!("{}_pkey", "é".repeat(29))
        );
    }
}
