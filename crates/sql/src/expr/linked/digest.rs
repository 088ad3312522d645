//! Hashes by name, and HMAC over them (RFC 2104).

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest as ring_digest};

use crate::error::{Error, Result};
use crate::expr::md5;
use crate::expr::sha::Sha;

#[derive(Clone, Copy)]
pub enum Hash {
    Md5,
    Sha1,
    Sha2(Sha),
}

/// Hashes that PostgreSQL has from OpenSSL, and Braid has not.
const OTHERS: [&str; 16] = [
    "md4",
    "md5-sha1",
    "mdc2",
    "ripemd",
    "ripemd160",
    "rmd160",
    "whirlpool",
    "sm3",
    "sha512-224",
    "sha512-256",
    "sha3-224",
    "sha3-256",
    "sha3-384",
    "sha3-512",
    "blake2b512",
    "blake2s256",
];

impl Hash {
    /// The hash of a name, in whatever case.
    pub fn named(name: &str) -> Result<Hash> {
        let folded = name.to_ascii_lowercase();
        match folded.as_str() {
            "md5" => Ok(Hash::Md5),
            "sha1" => Ok(Hash::Sha1),
            other if OTHERS.contains(&other) => {
                Err(Error::unsupported(format!("the hash {other}")))
            }
            other => Sha::named(other).map(Hash::Sha2).ok_or_else(|| {
                let message = format!("Cannot use \"{name}\": No such hash algorithm");
                Error::new("22023", message)
            }),
        }
    }

    pub fn of(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Hash::Md5 => md5::bytes(bytes).to_vec(),
            Hash::Sha1 => ring_digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes)
                .as_ref()
                .to_vec(),
            Hash::Sha2(sha) => sha.of(bytes),
        }
    }

    /// The bytes that it takes in at once.
    fn block_bytes(self) -> usize {
        match self {
            Hash::Sha2(Sha::Sha384 | Sha::Sha512) => 128,
            Hash::Md5 | Hash::Sha1 | Hash::Sha2(_) => 64,
        }
    }

    pub fn hmac(self, data: &[u8], key: &[u8]) -> Vec<u8> {
        let mut block = match key.len() > self.block_bytes() {
            true => self.of(key),
            false => key.to_vec(),
        };
        block.resize(self.block_bytes(), 0);
        let with = |pad: u8, rest: &[u8]| -> Vec<u8> {
            let mut whole: Vec<u8> = block.iter().map(|b| b ^ pad).collect();
            whole.extend_from_slice(rest);
            self.of(&whole)
        };
        with(0x5c, &with(0x36, data))
    }
}
