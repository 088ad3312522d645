//! The functions of `pgcrypto`: hashes, passwords, AES, random bytes. Those of PGP are refused.

use block::value::{Datum, DatumRef};

use super::cipher::Cipher;
use super::digest::Hash;
use super::{Entry, bytes, entry, fill_random, integer, password, random, text};
use crate::error::{Error, Result};
use crate::pgtype::IoSettings;

/// PostgreSQL's limit of `gen_random_bytes`.
const MAX_RANDOM_BYTES: i32 = 1024;

pub const ENTRIES: &[Entry] = &[
    entry("pg_digest", |v, _| {
        let hash = Hash::named(text(v, 1)?)?;
        Ok(Datum::Bytea(hash.of(bytes(v, 0)?)))
    }),
    entry("pg_hmac", |v, _| {
        let hash = Hash::named(text(v, 2)?)?;
        Ok(Datum::Bytea(hash.hmac(bytes(v, 0)?, bytes(v, 1)?)))
    }),
    entry("pg_crypt", |v, _| {
        password::crypt(text(v, 0)?, text(v, 1)?).map(Datum::Text)
    }),
    entry("pg_gen_salt", |v, _| {
        password::salt(&text(v, 0)?.to_ascii_lowercase(), 0).map(Datum::Text)
    }),
    entry("pg_gen_salt_rounds", |v, _| {
        let rounds = integer(v, 1)?;
        password::salt(&text(v, 0)?.to_ascii_lowercase(), rounds).map(Datum::Text)
    }),
    entry("pg_encrypt", |v, _| {
        let cipher = Cipher::named(text(v, 2)?)?;
        let made = cipher.encrypt(bytes(v, 0)?, bytes(v, 1)?, &[])?;
        Ok(Datum::Bytea(made))
    }),
    entry("pg_decrypt", |v, _| {
        let cipher = Cipher::named(text(v, 2)?)?;
        let made = cipher.decrypt(bytes(v, 0)?, bytes(v, 1)?, &[])?;
        Ok(Datum::Bytea(made))
    }),
    entry("pg_encrypt_iv", |v, _| {
        let cipher = Cipher::named(text(v, 3)?)?;
        let made = cipher.encrypt(bytes(v, 0)?, bytes(v, 1)?, bytes(v, 2)?)?;
        Ok(Datum::Bytea(made))
    }),
    entry("pg_decrypt_iv", |v, _| {
        let cipher = Cipher::named(text(v, 3)?)?;
        let made = cipher.decrypt(bytes(v, 0)?, bytes(v, 1)?, bytes(v, 2)?)?;
        Ok(Datum::Bytea(made))
    }),
    entry("pg_random_bytes", |v, _| {
        let count = integer(v, 0)?;
        if !(1..=MAX_RANDOM_BYTES).contains(&count) {
            return Err(Error::new("39000", "Length not in range"));
        }
        let mut made = vec![0; usize::try_from(count).unwrap_or(0)];
        fill_random(&mut made)?;
        Ok(Datum::Bytea(made))
    }),
    entry("pg_random_uuid", |_, _| {
        Ok(Datum::Uuid(super::uuid::versioned(random()?, 4)))
    }),
    entry("pgp_sym_encrypt_text", refused),
    entry("pgp_sym_encrypt_bytea", refused),
    entry("pgp_sym_decrypt_text", refused),
    entry("pgp_sym_decrypt_bytea", refused),
    entry("pgp_pub_encrypt_text", refused),
    entry("pgp_pub_encrypt_bytea", refused),
    entry("pgp_pub_decrypt_text", refused),
    entry("pgp_pub_decrypt_bytea", refused),
    entry("pgp_key_id_w", refused),
    entry("pg_armor", refused),
    entry("pg_dearmor", refused),
    entry("pgp_armor_headers", refused),
];

fn refused(_: &[DatumRef<'_>], _: &IoSettings) -> Result<Datum> {
    Err(Error::unsupported("the functions of PGP"))
}
