//! A check of one family of messages against hostile bytes, for the tests of the crates that have
//! families.
//!
//! Every message comes back from its bytes. Bytes that are a prefix of a message, a message with a
//! byte changed or with a byte more, or made up, are refused or are the bytes of the message that
//! they decode to: nothing else decodes, and nothing makes the reader panic.
//!
//! Made-up bytes become messages often enough because a refusal says where it struck: bytes before
//! that place are drawn again.

use crate::{Bad, Codec, Reader, Tagged, Wire, Writer};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The seed that a test works with: `BRAID_SEED`, or this one.
const SEED: u64 = 0x5eed_0028;
/// Made-up messages of each kind.
const MADE_UP: u32 = 64;
/// Bytes that one made-up message begins as, at most.
const LENGTH: usize = 400;
/// Draws of bytes before a place that was refused, until a new message is begun.
const DRAWS: u32 = 200;
/// Made-up messages that are begun, until a kind is given up as unreachable.
const BEGUN: u32 = 2000;
/// Values that one byte of a message is changed to.
const CHANGES: [u8; 9] = [0, 1, 2, 3, 12, 0x7f, 0x80, 0xfe, 0xff];

/// A family as one side writes it and the other reads it.
pub struct Family<'a, T> {
    /// The bytes that messages of each kind begin with, and the name of the kind.
    pub kinds: Vec<(Vec<u8>, &'static str)>,
    pub encode: &'a dyn Fn(&T) -> Vec<u8>,
    pub decode: &'a dyn Fn(&[u8]) -> Result<T, Bad>,
}

/// The bytes that messages of each kind of a family begin with, and the name of the kind.
pub fn kinds<F: Tagged<T>, T>() -> Vec<(Vec<u8>, &'static str)>
where
    F::Tag: Wire,
{
    let bytes = |tag: &F::Tag| {
        let mut bytes = Vec::new();
        tag.put(&mut Writer::new(&mut bytes));
        bytes
    };
    let kinds = F::TAGS.iter();
    kinds.map(|(tag, name)| (bytes(tag), *name)).collect()
}

/// Checks a family whose messages are a tag, the fields, and nothing else. The tag is put in front
/// also where it travels in the header of a frame.
pub fn check_tagged<F, T>(samples: &[T])
where
    F: Tagged<T, Tag: Wire> + Codec<T>,
    T: PartialEq + Debug,
{
    let family = Family {
        kinds: kinds::<F, T>(),
        encode: &|message| {
            let mut bytes = Vec::new();
            F::put(message, &mut Writer::new(&mut bytes));
            bytes
        },
        decode: &|bytes| {
            let mut r = Reader::new(bytes);
            let message = F::get(&mut r)?;
            r.finish().map(|()| message)
        },
    };
    family.check(samples);
}

impl<T: PartialEq + Debug> Family<'_, T> {
    /// Checks the family. `samples` has at least one message of each kind.
    pub fn check(&self, samples: &[T]) {
        let given = std::env::var("BRAID_SEED").ok();
        let seed = given.map_or(SEED, |seed| seed.parse().expect("BRAID_SEED is a number"));
        // A failing test shows it.
        println!("BRAID_SEED={seed}");
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for message in samples {
            let bytes = (self.encode)(message);
            *seen.entry(self.kind_of(&bytes)).or_default() += 1;
            self.check_message(message, &bytes);
        }
        let mut rng = Rng(seed);
        for (head, name) in &self.kinds {
            assert!(seen.contains_key(name), "there is no sample of {name}");
            self.make_up(head, name, &mut rng);
        }
    }

    fn kind_of(&self, bytes: &[u8]) -> &'static str {
        let found = self.kinds.iter().find(|(head, _)| bytes.starts_with(head));
        found
            .unwrap_or_else(|| panic!("no kind begins with {bytes:?}"))
            .1
    }

    fn check_message(&self, message: &T, bytes: &[u8]) {
        let back = (self.decode)(bytes);
        assert_eq!(back.as_ref(), Ok(message), "from {bytes:02x?}");
        for n in 0..bytes.len() {
            self.check_bytes(&bytes[..n]);
        }
        let mut changed = bytes.to_vec();
        for at in 0..bytes.len() {
            for byte in CHANGES.into_iter().chain([bytes[at] ^ 1, bytes[at] ^ 0x40]) {
                changed[at] = byte;
                self.check_bytes(&changed);
            }
            changed[at] = bytes[at];
        }
        changed.push(0);
        self.check_bytes(&changed);
    }

    /// Bytes are refused, or they are those of the message that they decode to.
    fn check_bytes(&self, bytes: &[u8]) -> Option<Bad> {
        match (self.decode)(bytes) {
            Ok(message) => {
                assert_eq!((self.encode)(&message), bytes, "{message:?}");
                None
            }
            Err(bad) => {
                let at = bad.offset();
                assert!(at.is_none_or(|at| at <= bytes.len()), "{bad}");
                Some(bad)
            }
        }
    }

    fn make_up(&self, head: &[u8], name: &str, rng: &mut Rng) {
        let mut made = 0;
        for _ in 0..BEGUN {
            if made == MADE_UP {
                return;
            }
            if let Some(bytes) = self.made_up(head, rng) {
                let message = (self.decode)(&bytes).expect("it was not refused");
                self.check_message(&message, &bytes);
                made += 1;
            }
        }
        assert!(made > 0, "no bytes were made up that are {name}");
    }

    /// Bytes of a message that begins so, unless none were found.
    fn made_up(&self, head: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
        let mut bytes = head.to_vec();
        // Long, so that its end is found where it is refused as too long; or short, because one
        // that ends with a list is not.
        let most = LENGTH >> rng.below(6);
        let length = rng.below(most as u64 + 1);
        rng.extend(&mut bytes, length);
        for _ in 0..DRAWS {
            let Some(bad) = self.check_bytes(&bytes) else {
                return Some(bytes);
            };
            let at = bad.offset()?.max(head.len());
            // Where more follows than the message has, the message ends there.
            if self.check_bytes(&bytes[..at]).is_none() {
                bytes.truncate(at);
                return Some(bytes);
            }
            // What was taken last is up to sixteen bytes long.
            let from = at.saturating_sub(rng.below(17)).max(head.len());
            let behind = bytes.split_off(at);
            bytes.truncate(from);
            rng.extend(&mut bytes, at - from);
            bytes.extend(behind);
        }
        None
    }
}

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> usize {
        (self.next() % n) as usize
    }

    /// Appends bytes: small numbers between zeros, and any.
    fn extend(&mut self, bytes: &mut Vec<u8>, n: usize) {
        let end = bytes.len() + n;
        while bytes.len() < end {
            match self.below(8) {
                0 => bytes.push(self.next() as u8),
                1 => bytes.push(0x80),
                2..=4 => bytes.push(self.below(4) as u8),
                _ => {
                    let zeros = (1 + self.below(8)).min(end - bytes.len());
                    bytes.extend(std::iter::repeat_n(0, zeros));
                }
            }
        }
    }
}
