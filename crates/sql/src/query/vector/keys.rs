//! Group keys: a hash table over keys of whole words.
//!
//! A key is a word for each column (two for a decimal), and one that says which columns are NULL.
//! Strings are numbered first ([`Strings`]), so that their number is the word. Numbers of groups
//! and strings are given in order, so what belongs to them lies in arrays.

use std::hash::{BuildHasher, RandomState};

use block::value::Datum;

use super::Stop;
use super::batch::{Batch, Column, Layout, Texts, Type, Values};
use super::expr::Value;
use crate::error::Error;

const FREE: u32 = u32::MAX;

/// Mixes words with numbers that nobody outside can guess.
#[derive(Clone, Copy)]
pub struct Mix {
    seed: u64,
    multiplier: u64,
}

impl Mix {
    pub fn new() -> Mix {
        let random = RandomState::new();
        Mix {
            seed: random.hash_one(1),
            multiplier: random.hash_one(2) | 1,
        }
    }

    #[inline]
    fn word(self, hash: u64, word: u64) -> u64 {
        let product = u128::from(hash ^ word) * u128::from(self.multiplier);
        (product as u64) ^ ((product >> 64) as u64)
    }

    #[inline]
    fn words(self, words: &[u64]) -> u64 {
        let hash = words.iter().fold(self.seed, |hash, w| self.word(hash, *w));
        hash ^ hash >> 32
    }

    #[inline]
    pub fn integers(self, words: &[i64]) -> u64 {
        let mix = |hash, w: &i64| self.word(hash, *w as u64);
        let hash = words.iter().fold(self.seed, mix);
        hash ^ hash >> 32
    }

    #[inline]
    fn bytes(self, bytes: &[u8]) -> u64 {
        let mut chunks = bytes.chunks_exact(8);
        let mut hash = self.seed ^ bytes.len() as u64;
        for chunk in &mut chunks {
            let word = u64::from_le_bytes(chunk.try_into().expect("a chunk of eight bytes"));
            hash = self.word(hash, word);
        }
        let mut rest = [0; 8];
        rest[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        let hash = self.word(hash, u64::from_le_bytes(rest));
        hash ^ hash >> 32
    }
}

/// Places of a hash table with open addressing, which hold numbers.
struct Slots {
    slots: Vec<u32>,
    used: usize,
}

impl Slots {
    fn new() -> Slots {
        Slots {
            slots: vec![FREE; 64],
            used: 0,
        }
    }

    /// The number at the hash that `is` the one, or the place where it would be.
    #[inline]
    fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Result<u32, usize> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            match self.slots[at] {
                FREE => return Err(at),
                number if is(number) => return Ok(number),
                _ => at = (at + 1) & mask,
            }
        }
    }

    fn put(&mut self, at: usize, number: u32, hash_of: impl Fn(u32) -> u64) {
        self.slots[at] = number;
        self.used += 1;
        if self.used * 2 <= self.slots.len() {
            return;
        }
        let mask = self.slots.len() * 2 - 1;
        let mut larger = vec![FREE; mask + 1];
        for number in self.slots.iter().filter(|s| **s != FREE) {
            let mut at = hash_of(*number) as usize & mask;
            while larger[at] != FREE {
                at = (at + 1) & mask;
            }
            larger[at] = *number;
        }
        self.slots = larger;
    }
}

/// Strings, each once, by number.
pub struct Strings {
    mix: Mix,
    slots: Slots,
    texts: Texts,
}

impl Strings {
    fn new() -> Strings {
        Strings {
            mix: Mix::new(),
            slots: Slots::new(),
            texts: Texts::default(),
        }
    }

    fn number(&mut self, text: &[u8]) -> u32 {
        let hash = self.mix.bytes(text);
        let (texts, mix) = (&self.texts, self.mix);
        match self.slots.find(hash, |n| texts.get(n as usize) == text) {
            Ok(number) => number,
            Err(at) => {
                let number = self.texts.len() as u32;
                self.texts.push(text);
                let texts = &self.texts;
                let hash_of = |n: u32| mix.bytes(texts.get(n as usize));
                self.slots.put(at, number, hash_of);
                number
            }
        }
    }

    fn memory(&self) -> usize {
        self.texts.bytes.len() + self.texts.len() * size_of::<usize>() + self.slots.slots.len() * 4
    }
}

/// The groups of one worker.
pub struct Groups {
    mix: Mix,
    types: Vec<Type>,
    /// Words of a key.
    width: usize,
    /// The keys, one after the other.
    keys: Vec<u64>,
    /// Of each group the position of its first row.
    pub firsts: Vec<u64>,
    slots: Slots,
    /// Of each column that is a string.
    strings: Vec<Option<Strings>>,
    /// The keys of the rows at hand.
    words: Vec<u64>,
}

/// A NaN and a zero for all that are equal to them.
fn float_word(v: f64) -> Result<u64, Stop> {
    match v {
        v if v.is_nan() => Ok(f64::NAN.to_bits()),
        // Which of the zeros the group shows depends on the row that comes first.
        0.0 if v.is_sign_negative() => Err(Stop::Refused("a negative zero as a key")),
        v => Ok(v.to_bits()),
    }
}

impl Groups {
    pub fn new(types: &[Type]) -> Groups {
        let words = |t: &Type| match t {
            Type::Decimal(_) => 2,
            _ => 1,
        };
        let strings = |t: &Type| (*t == Type::Text).then(Strings::new);
        Groups {
            mix: Mix::new(),
            types: types.to_vec(),
            // Which columns are NULL comes first.
            width: 1 + types.iter().map(words).sum::<usize>(),
            keys: Vec::new(),
            firsts: Vec::new(),
            slots: Slots::new(),
            strings: types.iter().map(strings).collect(),
            words: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.firsts.len()
    }

    /// Bytes in use.
    pub fn memory(&self) -> usize {
        let strings = self.strings.iter().flatten().map(Strings::memory);
        self.keys.len() * 8
            + self.firsts.len() * 8
            + self.slots.slots.len() * 4
            + strings.sum::<usize>()
    }

    /// Puts the number of each row's group into `numbers`. The rows' positions begin with `first`.
    pub fn find(
        &mut self,
        keys: &[Value],
        batch: &Batch,
        first: u64,
        numbers: &mut Vec<u32>,
    ) -> Result<(), Stop> {
        let rows = batch.rows;
        self.words.clear();
        self.words.resize(rows * self.width, 0);
        let mut word = 1;
        for (at, key) in keys.iter().enumerate() {
            let operand = key.eval(batch)?;
            match operand.column() {
                Some(column) => self.set_words(at, &mut word, column)?,
                None => self.set_words(at, &mut word, &operand.into_column(rows))?,
            }
        }
        numbers.clear();
        let words = std::mem::take(&mut self.words);
        let found = words
            .chunks_exact(self.width)
            .zip(first..)
            .try_for_each(|(key, position)| {
                numbers.push(self.group(key, position)?);
                Ok(())
            });
        self.words = words;
        found
    }

    /// Sets the words of the key's column `at` in all rows.
    fn set_words(&mut self, at: usize, word: &mut usize, column: &Column) -> Result<(), Stop> {
        let width = self.width;
        for (row, null) in column.nulls.iter().enumerate() {
            if *null {
                self.words[row * width] |= 1 << at;
            }
        }
        let null = |row: usize| column.nulls.get(row).copied().unwrap_or(false);
        let places = self.words.chunks_exact_mut(width);
        match &column.values {
            Values::Int(v) => {
                for (row, (key, v)) in places.zip(v).enumerate() {
                    key[*word] = if null(row) { 0 } else { *v as u64 };
                }
            }
            Values::Float(v) => {
                for (row, (key, v)) in places.zip(v).enumerate() {
                    key[*word] = if null(row) { 0 } else { float_word(*v)? };
                }
            }
            Values::Decimal(v) => {
                for (row, (key, v)) in places.zip(v).enumerate() {
                    if !null(row) {
                        (key[*word], key[*word + 1]) = (*v as u64, (*v >> 64) as u64);
                    }
                }
                *word += 1;
            }
            Values::Text(v) => {
                let Some(strings) = &mut self.strings[at] else {
                    return Err(Error::internal("a key without its strings").into());
                };
                for (row, key) in places.enumerate() {
                    if !null(row) {
                        key[*word] = strings.number(v.get(row)).into();
                    }
                }
            }
        }
        *word += 1;
        Ok(())
    }

    /// The group of a key, whose first row may be the one at a position.
    #[inline]
    fn group(&mut self, key: &[u64], position: u64) -> Result<u32, Stop> {
        let (width, mix, keys) = (self.width, self.mix, &self.keys);
        let same = |n: u32| &keys[n as usize * width..(n as usize + 1) * width] == key;
        match self.slots.find(mix.words(key), same) {
            Ok(number) => Ok(number),
            Err(at) => {
                let number = self.firsts.len() as u32;
                if number >= FREE / 2 {
                    return Err(Stop::Full);
                }
                self.keys.extend_from_slice(key);
                self.firsts.push(position);
                let keys = &self.keys;
                let hash_of =
                    |n: u32| mix.words(&keys[n as usize * width..(n as usize + 1) * width]);
                self.slots.put(at, number, hash_of);
                Ok(number)
            }
        }
    }

    /// Takes in the groups of another worker; gives the number that each has here.
    pub fn merge(&mut self, other: &Groups) -> Result<Vec<u32>, Stop> {
        let mut numbers = Vec::with_capacity(other.len());
        let mut translated: Vec<Option<Vec<u32>>> = Vec::new();
        for (own, others) in self.strings.iter_mut().zip(&other.strings) {
            translated.push(match (own, others) {
                (Some(own), Some(others)) => {
                    let texts = &others.texts;
                    Some((0..texts.len()).map(|n| own.number(texts.get(n))).collect())
                }
                _ => None,
            });
        }
        let mut key = vec![0; self.width];
        for (other_key, first) in other.keys.chunks_exact(self.width).zip(&other.firsts) {
            key.copy_from_slice(other_key);
            let mut word = 1;
            for (at, ty) in self.types.iter().enumerate() {
                if let Some(numbers) = &translated[at]
                    && key[0] >> at & 1 == 0
                {
                    key[word] = numbers[key[word] as usize].into();
                }
                word += if ty.layout() == Layout::Decimal { 2 } else { 1 };
            }
            let number = self.group(&key, *first)?;
            let known = &mut self.firsts[number as usize];
            *known = (*known).min(*first);
            numbers.push(number);
        }
        Ok(numbers)
    }

    /// The values of a group's key.
    pub fn values(&self, number: usize) -> Result<Vec<Datum>, Stop> {
        let key = &self.keys[number * self.width..(number + 1) * self.width];
        let mut word = 1;
        let mut values = Vec::with_capacity(self.types.len());
        for (at, ty) in self.types.iter().enumerate() {
            let low = key[word];
            let null = key[0] >> at & 1 == 1;
            word += 1;
            values.push(match (ty, &self.strings[at]) {
                (Type::Decimal(scale), _) => {
                    let value = i128::from(key[word]) << 64 | i128::from(low);
                    word += 1;
                    match null {
                        true => Datum::Null,
                        false => super::state::decimal(value, *scale),
                    }
                }
                _ if null => Datum::Null,
                (Type::Text, Some(strings)) => text(strings.texts.get(low as usize))?,
                (ty, _) if ty.layout() == Layout::Float => ty.datum_of_float(f64::from_bits(low)),
                (ty, _) => ty.datum_of_int(low as i64),
            });
        }
        Ok(values)
    }
}

/// Bytes of a column as text.
pub fn text(bytes: &[u8]) -> Result<Datum, Stop> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Datum::Text(text.to_string())),
        Err(_) => Err(Error::new("XX001", "damaged row: text is not UTF-8").into()),
    }
}
