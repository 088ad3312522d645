//! AES in the modes CBC and ECB, for `encrypt` and `decrypt`.

use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256};

use crate::error::{Error, Result};

const BLOCK_BYTES: usize = 16;
/// The longest key; what is longer is cut.
const KEY_BYTES: usize = 32;

type Block = [u8; BLOCK_BYTES];

/// A cipher as its name has it: `aes`, `aes-cbc/pad:pkcs`.
pub struct Cipher {
    chained: bool,
    padded: bool,
}

/// Of an option that there is not, too.
const UNKNOWN: &str = "No such cipher algorithm";

/// Names of PostgreSQL's other ciphers.
const OTHERS: [&str; 6] = ["bf", "blowfish", "des", "3des", "des3", "cast5"];

impl Cipher {
    pub fn named(name: &str) -> Result<Cipher> {
        let wrong = |why: &str| Error::new("22023", format!("Cannot use \"{name}\": {why}"));
        let folded = name.to_lowercase();
        let (algorithm, options) = match folded.split_once('/') {
            Some((algorithm, options)) => (algorithm, Some(options)),
            None => (folded.as_str(), None),
        };
        let mut padded = true;
        for option in options.into_iter().flat_map(|all| all.split('/')) {
            padded = match option {
                "pad:pkcs" => true,
                "pad:none" => false,
                _ => return Err(wrong(UNKNOWN)),
            };
        }
        let chained = match algorithm {
            "aes" | "aes-cbc" | "rijndael" | "rijndael-cbc" => true,
            "aes-ecb" | "rijndael-ecb" => false,
            other => {
                let base = other.split('-').next().unwrap_or_default();
                return Err(match OTHERS.contains(&base) {
                    true => Error::unsupported(format!("the cipher {other}")),
                    false => wrong(UNKNOWN),
                });
            }
        };
        Ok(Cipher { chained, padded })
    }

    pub fn encrypt(&self, data: &[u8], key: &[u8], iv: &[u8]) -> Result<Vec<u8>> {
        let key = Key::new(key);
        let mut data = data.to_vec();
        if self.padded {
            let missing = BLOCK_BYTES - data.len() % BLOCK_BYTES;
            data.extend(std::iter::repeat_n(missing as u8, missing));
        }
        if !data.len().is_multiple_of(BLOCK_BYTES) {
            return Err(Error::new("39000", "encrypt error: Encryption failed"));
        }
        let mut before = first(iv);
        for block in data.as_chunks_mut::<BLOCK_BYTES>().0 {
            if self.chained {
                mix(block, &before);
            }
            key.encrypt(block);
            before = *block;
        }
        Ok(data)
    }

    pub fn decrypt(&self, data: &[u8], key: &[u8], iv: &[u8]) -> Result<Vec<u8>> {
        let failed = || Error::new("39000", "decrypt error: Decryption failed");
        let key = Key::new(key);
        let mut data = data.to_vec();
        if !data.len().is_multiple_of(BLOCK_BYTES) {
            return Err(failed());
        }
        let mut before = first(iv);
        for block in data.as_chunks_mut::<BLOCK_BYTES>().0 {
            let enciphered = *block;
            key.decrypt(block);
            if self.chained {
                mix(block, &before);
            }
            before = enciphered;
        }
        if !self.padded || data.is_empty() {
            return match self.padded {
                true => Err(failed()),
                false => Ok(data),
            };
        }
        let padding = data.last().copied().unwrap_or(0);
        let kept = data.len().saturating_sub(usize::from(padding));
        let fits = (1..=BLOCK_BYTES as u8).contains(&padding);
        if !fits || data[kept..].iter().any(|b| *b != padding) {
            return Err(failed());
        }
        data.truncate(kept);
        Ok(data)
    }
}

/// What the first block is mixed with: zeros, where nothing is said.
fn first(iv: &[u8]) -> Block {
    let mut block = [0; BLOCK_BYTES];
    let given = iv.len().min(BLOCK_BYTES);
    block[..given].copy_from_slice(&iv[..given]);
    block
}

fn mix(block: &mut Block, with: &Block) {
    block.iter_mut().zip(with).for_each(|(b, w)| *b ^= w);
}

/// A key of the length that AES has next above the one given, filled up with zeros.
enum Key {
    Short(Box<Aes128>),
    Middle(Box<Aes192>),
    Long(Box<Aes256>),
}

impl Key {
    fn new(given: &[u8]) -> Key {
        let mut key = [0; KEY_BYTES];
        let used = given.len().min(KEY_BYTES);
        key[..used].copy_from_slice(&given[..used]);
        match used {
            0..=16 => Key::Short(Box::new(Aes128::new(&part::<16>(&key).into()))),
            17..=24 => Key::Middle(Box::new(Aes192::new(&part::<24>(&key).into()))),
            _ => Key::Long(Box::new(Aes256::new(&Array(key)))),
        }
    }

    fn encrypt(&self, block: &mut Block) {
        let mut whole = Array(*block);
        match self {
            Key::Short(aes) => aes.encrypt_block(&mut whole),
            Key::Middle(aes) => aes.encrypt_block(&mut whole),
            Key::Long(aes) => aes.encrypt_block(&mut whole),
        }
        *block = whole.0;
    }

    fn decrypt(&self, block: &mut Block) {
        let mut whole = Array(*block);
        match self {
            Key::Short(aes) => aes.decrypt_block(&mut whole),
            Key::Middle(aes) => aes.decrypt_block(&mut whole),
            Key::Long(aes) => aes.decrypt_block(&mut whole),
        }
        *block = whole.0;
    }
}

/// The first bytes of a key.
fn part<const N: usize>(key: &[u8; KEY_BYTES]) -> [u8; N] {
    std::array::from_fn(|at| key[at])
}
