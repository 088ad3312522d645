//! SCRAM-SHA-256, the server's side: verifiers of passwords, and the exchange that proves one.
//!
//! **Invariants.** No password and no key is in any `Debug` output or error. Whatever the bytes of
//! a client, the answer is a value or an error.

#[cfg(any(test, feature = "count"))]
pub mod count;
mod exchange;
mod verifier;

pub use exchange::{Binding, Error, Exchange, Mechanism, Proof};
pub use verifier::{ITERATIONS, Verifier, is_md5};

/// Random bytes for a secret.
pub fn random() -> Result<[u8; KEY_BYTES], Error> {
    random_bytes()
}

fn random_bytes<const N: usize>() -> Result<[u8; N], Error> {
    #[cfg(any(test, feature = "count"))]
    count::note(|steps| steps.random_bytes += N as u64);
    let mut bytes = [0; N];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
        .map_err(|_| Error::Random)?;
    Ok(bytes)
}

/// Length of a key and of a proof.
const KEY_BYTES: usize = 32;

/// A seal on these parts that only who has the secret can make. Each part is told from the next.
pub fn seal(secret: &[u8], parts: &[&[u8]]) -> [u8; KEY_BYTES] {
    let mut all = Vec::new();
    for part in parts {
        all.extend((part.len() as u64).to_be_bytes());
        all.extend_from_slice(part);
    }
    hmac(secret, &[b"seal", &all])
}

/// Compares in a time that does not depend on where the keys differ.
fn same(a: &[u8; KEY_BYTES], b: &[u8; KEY_BYTES]) -> bool {
    let differing = a.iter().zip(b).fold(0, |d, (x, y)| d | (x ^ y));
    std::hint::black_box(differing) == 0
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; KEY_BYTES] {
    #[cfg(any(test, feature = "count"))]
    count::note(|steps| steps.hashes += 1);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key);
    let mut context = ring::hmac::Context::with_key(&key);
    parts.iter().for_each(|part| context.update(part));
    key_of(context.sign().as_ref())
}

fn sha256(bytes: &[u8]) -> [u8; KEY_BYTES] {
    #[cfg(any(test, feature = "count"))]
    count::note(|steps| steps.hashes += 1);
    key_of(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}

fn key_of(bytes: &[u8]) -> [u8; KEY_BYTES] {
    bytes
        .try_into()
        .expect("invariant: SHA-256 has as many bytes as a key")
}
