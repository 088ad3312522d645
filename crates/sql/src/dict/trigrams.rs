//! Trigrams of strings, as the keys of `gin_trgm_ops`: three characters in a row of a word with two
//! blanks before it and one behind it, words being runs of letters and digits.
//!
//! **Invariant.** A string that is LIKE or ILIKE a pattern has all trigrams of the pattern: case is
//! folded as ILIKE does it, character by character.

use crate::expr::like::fold;

pub type Trigram = [char; 3];

/// The trigrams of a string, each once, in order.
pub fn of_text(text: &str) -> Vec<Trigram> {
    let mut found = Vec::new();
    let folded: Vec<char> = text.chars().map(fold).collect();
    for word in folded.split(|c| !is_of_word(*c)).filter(|w| !w.is_empty()) {
        let blank = [' '];
        add(&[&blank, &blank, word, &blank].concat(), &mut found);
    }
    sorted(found)
}

/// The trigrams that all strings have which match a pattern. There may be none.
pub fn of_pattern(pattern: &str, escape: Option<char>) -> Vec<Trigram> {
    let mut found = Vec::new();
    // A piece of a word that stands between wildcards has no blanks there.
    let mut piece = vec![' ', ' '];
    let mut has_word = false;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        let (literal, wildcard) = match c {
            c if Some(c) == escape => match chars.next() {
                Some(next) => (fold(next), false),
                // The pattern is an error, whoever looks at it.
                None => return Vec::new(),
            },
            '%' | '_' => (c, true),
            c => (fold(c), false),
        };
        if !wildcard && is_of_word(literal) {
            piece.push(literal);
            has_word = true;
            continue;
        }
        if has_word && !wildcard {
            piece.push(' ');
        }
        if has_word {
            add(&piece, &mut found);
        }
        piece.clear();
        if !wildcard {
            piece.extend([' ', ' ']);
        }
        has_word = false;
    }
    if has_word {
        piece.push(' ');
        add(&piece, &mut found);
    }
    sorted(found)
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric()
}

fn add(piece: &[char], found: &mut Vec<Trigram>) {
    found.extend(piece.windows(3).map(|w| [w[0], w[1], w[2]]));
}

fn sorted(mut found: Vec<Trigram>) -> Vec<Trigram> {
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::like;
    use seam::Rng;

    fn shown(trigrams: &[Trigram]) -> Vec<String> {
        trigrams.iter().map(|t| t.iter().collect()).collect()
    }

    #[test]
    fn words_have_blanks_around_them() {
        assert_eq!(
            shown(&of_text("Cat, a1")),
            ["  a", "  c", " a1", " ca", "a1 ", "at ", "cat"]
        );
        assert!(of_text("--").is_empty());
    }

    #[test]
    fn patterns_have_blanks_where_no_wildcard_is() {
        let of = |pattern| shown(&of_pattern(pattern, Some('\\')));
        assert_eq!(of("%cats%"), ["ats", "cat"]);
        assert_eq!(of("cat%"), ["  c", " ca", "cat"]);
        assert_eq!(of("%a cat"), ["  c", " ca", "at ", "cat"]);
        assert_eq!(of("%\\%cat_x%"), ["  c", " ca", "cat"]);
        assert!(of("%ab%").is_empty());
    }

    #[test]
    fn what_matches_has_the_trigrams_of_the_pattern() {
        const CHARS: [char; 12] = ['a', 'B', 'b', 'ς', 'Σ', 'İ', ' ', '-', '\\', '%', '_', '1'];
        let mut rng = Rng(5);
        let mut text = |most: u64, from: &[char]| -> String {
            let count = rng.below(most);
            (0..count)
                .map(|_| from[rng.below(from.len() as u64) as usize])
                .collect()
        };
        let mut met = 0;
        for n in 0..200_000 {
            let value = text(9, &CHARS);
            let pattern = format!("{}%{}%", text(3, &CHARS), text(5, &CHARS));
            let fold_case = n % 2 == 0;
            let matched = like::matches(&value, &pattern, Some('\\'), fold_case);
            if matched.is_ok_and(|m| m) {
                let (has, wanted) = (of_text(&value), of_pattern(&pattern, Some('\\')));
                met += usize::from(!wanted.is_empty());
                let all = wanted.iter().all(|t| has.contains(t));
                assert!(all, "{value:?} {pattern:?}");
            }
        }
        assert!(met > 100, "{met}");
    }
}
