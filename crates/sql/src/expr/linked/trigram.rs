//! The functions of `pg_trgm`: how similar texts are by the trigrams of their words.
//!
//! A word is a run of letters and digits, in small letters, with two blanks before it and one after
//! it. A trigram is three of its characters in a row, as three bytes: those of the characters
//! themselves if there are three, or else bytes of a checksum over them, PostgreSQL's, so that the
//! order of trigrams and what two texts have in common are the same as there.

use block::array::Array;
use block::folded::small;
use block::value::{ColType, Datum};

use super::{Entry, entry, text};
use crate::error::Result;

type Trigram = [u8; 3];

pub const ENTRIES: &[Entry] = &[
    entry("similarity", |v, _| {
        similarity(text(v, 0)?, text(v, 1)?).map(Datum::Float4)
    }),
    entry("similarity_dist", |v, _| {
        similarity(text(v, 0)?, text(v, 1)?).map(|s| Datum::Float4(1.0 - s))
    }),
    entry("show_trgm", |v, _| shown(text(v, 0)?)),
    entry("word_similarity", |v, _| {
        of_words(text(v, 0)?, text(v, 1)?, false).map(Datum::Float4)
    }),
    entry("word_similarity_dist_op", |v, _| {
        of_words(text(v, 0)?, text(v, 1)?, false).map(|s| Datum::Float4(1.0 - s))
    }),
    entry("word_similarity_dist_commutator_op", |v, _| {
        of_words(text(v, 1)?, text(v, 0)?, false).map(|s| Datum::Float4(1.0 - s))
    }),
    entry("strict_word_similarity", |v, _| {
        of_words(text(v, 0)?, text(v, 1)?, true).map(Datum::Float4)
    }),
    entry("strict_word_similarity_dist_op", |v, _| {
        of_words(text(v, 0)?, text(v, 1)?, true).map(|s| Datum::Float4(1.0 - s))
    }),
    entry("strict_word_similarity_dist_commutator_op", |v, _| {
        of_words(text(v, 1)?, text(v, 0)?, true).map(|s| Datum::Float4(1.0 - s))
    }),
];

/// A trigram where it stands in a text.
struct Placed {
    trigram: Trigram,
    /// Whether the trigram is the first of a word, or the last.
    first: bool,
    last: bool,
}

/// The trigrams of a text in their order, as often as they come.
fn placed(text: &str) -> Result<Vec<Placed>> {
    let mut all = Vec::new();
    for word in text.split(|c: char| !c.is_alphanumeric()) {
        if word.is_empty() {
            continue;
        }
        let small = word.chars().map(small);
        let blanks = |n: usize| std::iter::repeat_n(' ', n);
        let padded: Vec<char> = blanks(2).chain(small).chain(blanks(1)).collect();
        let from = all.len();
        for three in padded.array_windows() {
            wait::check_cancel().map_err(|_| crate::session::cancelled())?;
            all.push(Placed {
                trigram: trigram(three),
                first: false,
                last: false,
            });
        }
        if let Some(placed) = all.get_mut(from) {
            placed.first = true;
        }
        if let Some(placed) = all.last_mut() {
            placed.last = true;
        }
    }
    Ok(all)
}

fn trigram(three: &[char; 3]) -> Trigram {
    let mut letters = [0; 3 * char::MAX_LEN_UTF8];
    let mut end = 0;
    for letter in three {
        end += letter.encode_utf8(&mut letters[end..]).len();
    }
    match &letters[..end] {
        [a, b, c] => [*a, *b, *c],
        bytes => {
            let [a, b, c, _] = checksum(bytes).to_le_bytes();
            [a, b, c]
        }
    }
}

/// A CRC-32 whose table is that of the reflected one and whose steps are not, as PostgreSQL has it.
fn checksum(bytes: &[u8]) -> u32 {
    let entry = |index: u32| {
        (0..8).fold(index, |crc, _| match crc & 1 {
            1 => crc >> 1 ^ 0xedb8_8320,
            _ => crc >> 1,
        })
    };
    let step = |crc: u32, byte: &u8| entry((crc >> 24 ^ u32::from(*byte)) & 0xff) ^ crc << 8;
    !bytes.iter().fold(u32::MAX, step)
}

/// By which trigrams are in order: their bytes with signs.
fn order(trigram: &Trigram) -> [i8; 3] {
    trigram.map(|b| b as i8)
}

/// Each trigram of a text once, in order.
fn distinct(text: &str) -> Result<Vec<Trigram>> {
    let mut all: Vec<Trigram> = placed(text)?.into_iter().map(|p| p.trigram).collect();
    all.sort_unstable_by_key(order);
    all.dedup();
    Ok(all)
}

/// What two have in common, of all that they have.
fn share(common: usize, of: usize, and: usize) -> f32 {
    common as f32 / (of + and - common) as f32
}

fn similarity(a: &str, b: &str) -> Result<f32> {
    let (a, b) = (distinct(a)?, distinct(b)?);
    if a.is_empty() || b.is_empty() {
        return Ok(0.0);
    }
    let has = |t: &&Trigram| b.binary_search_by_key(&order(t), order).is_ok();
    let common = a.iter().filter(has).count();
    Ok(share(common, a.len(), b.len()))
}

fn shown(text: &str) -> Result<Datum> {
    let written = |t: Trigram| match t.iter().all(|b| b.is_ascii_graphic() || *b == b' ') {
        true => t.iter().map(|b| char::from(*b)).collect::<String>(),
        false => {
            let [a, b, c] = t;
            format!("0x{a:02x}{b:02x}{c:02x}")
        }
    };
    let all = distinct(text)?.into_iter().map(written).map(Datum::Text);
    let all = all.collect::<Vec<_>>();
    Ok(Datum::Array(Array::of(ColType::Text, &all)))
}

/// The trigrams of a text, by numbers that those of another share.
struct Numbered {
    /// The number of each trigram of the text in its order.
    numbers: Vec<usize>,
    /// By number: whether the words that are looked for have it.
    wanted: Vec<bool>,
    /// How many different ones these have.
    different: usize,
}

fn numbered(words: &[Placed], text: &[Placed]) -> Numbered {
    let mut all: Vec<Trigram> = words.iter().chain(text).map(|p| p.trigram).collect();
    all.sort_by_key(order);
    all.dedup();
    let number = |p: &Placed| {
        let found = all.binary_search_by_key(&order(&p.trigram), order);
        found.unwrap_or_else(|at| at)
    };
    let mut wanted = vec![false; all.len()];
    for p in words {
        wanted[number(p)] = true;
    }
    Numbered {
        numbers: text.iter().map(number).collect(),
        different: wanted.iter().filter(|w| **w).count(),
        wanted,
    }
}

/// A stretch of a text that is compared with the words that are looked for: from where it begins,
/// how many different trigrams it has, and how many of these are wanted.
#[derive(Clone, Copy)]
struct Stretch {
    from: Option<usize>,
    different: usize,
    common: usize,
}

/// The greatest similarity of words with a stretch of a text; `strict`: with whole words of it.
fn of_words(words: &str, text: &str, strict: bool) -> Result<f32> {
    let (words, text) = (placed(words)?, placed(text)?);
    if words.is_empty() || text.is_empty() {
        return Ok(0.0);
    }
    let found = numbered(&words, &text);
    // Where a trigram was last met in the stretch.
    let mut last: Vec<Option<usize>> = vec![None; found.wanted.len()];
    let mut stretch = Stretch {
        from: strict.then_some(0),
        different: 0,
        common: 0,
    };
    let mut greatest: f32 = 0.0;
    for (at, number) in found.numbers.iter().copied().enumerate() {
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        let wanted = found.wanted[number];
        if stretch.from.is_some() || wanted {
            if last[number].is_none() {
                stretch.different += 1;
                stretch.common += usize::from(wanted);
            }
            last[number] = Some(at);
        }
        if !(if strict { text[at].last } else { wanted }) {
            continue;
        }
        let from = match stretch.from {
            Some(from) => from,
            None => {
                stretch.different = 1;
                at
            }
        };
        stretch.from = Some(from);
        let mut best = (
            share(stretch.common, found.different, stretch.different),
            stretch,
        );
        let mut shorter = stretch;
        for (begin, number) in (from..=at).zip(&found.numbers[from..=at]) {
            if !strict || text[begin].first {
                let similarity = share(shorter.common, found.different, shorter.different);
                if similarity > best.0 {
                    shorter.from = Some(begin);
                    best = (similarity, shorter);
                }
            }
            if last[*number] == Some(begin) {
                shorter.different -= 1;
                shorter.common -= usize::from(found.wanted[*number]);
            }
        }
        let (similarity, chosen) = best;
        stretch = chosen;
        greatest = greatest.max(similarity);
        let begin = stretch.from.unwrap_or(from);
        for (place, number) in (from..begin).zip(&found.numbers[from..begin]) {
            if last[*number] == Some(place) {
                last[*number] = None;
            }
        }
    }
    Ok(greatest)
}
