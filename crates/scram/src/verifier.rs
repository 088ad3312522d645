//! What is stored of a password.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::{Error, KEY_BYTES, hmac, random_bytes, sha256};

/// Rounds of the hash of a password, as in PostgreSQL. RFC 7677 asks for as many at least.
pub const ITERATIONS: u32 = 4096;
/// Length of the salts that are made here, as in PostgreSQL.
const SALT_BYTES: usize = 16;
const NAME: &str = "SCRAM-SHA-256";

/// Checks a proof of a password, and proves the server to the client. Its text form is that of
/// PostgreSQL: `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    pub(crate) iterations: NonZeroU32,
    pub(crate) salt: Vec<u8>,
    pub(crate) stored_key: [u8; KEY_BYTES],
    pub(crate) server_key: [u8; KEY_BYTES],
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(..)")
    }
}

/// Whether the text is what PostgreSQL stored of passwords before SCRAM.
pub fn is_md5(text: &str) -> bool {
    text.strip_prefix("md5")
        .is_some_and(|hash| hash.len() == 32 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
}

impl Verifier {
    /// Of a password that somebody chooses. Fails if the system gives no random bytes.
    pub fn of_password(password: &str) -> Result<Verifier, Error> {
        let salt: [u8; SALT_BYTES] = random_bytes()?;
        let rounds = NonZeroU32::new(ITERATIONS).expect("invariant: there are rounds");
        Ok(Verifier::salted(password, &salt, rounds))
    }

    pub(crate) fn salted(password: &str, salt: &[u8], iterations: NonZeroU32) -> Verifier {
        let prepared = stringprep::saslprep(password);
        // A password that may not be one for SASL is used as it is, as in PostgreSQL.
        let password = prepared.as_deref().unwrap_or(password);
        #[cfg(any(test, feature = "count"))]
        crate::count::note(|steps| steps.rounds += u64::from(iterations.get()));
        let mut salted = [0; KEY_BYTES];
        ring::pbkdf2::derive(
            ring::pbkdf2::PBKDF2_HMAC_SHA256,
            iterations,
            salt,
            password.as_bytes(),
            &mut salted,
        );
        Verifier {
            iterations,
            salt: salt.to_vec(),
            stored_key: sha256(&hmac(&salted, &[b"Client Key"])),
            server_key: hmac(&salted, &[b"Server Key"]),
        }
    }

    /// That of a user who does not exist, or has no password: no proof fits it. `secret` is one of
    /// the database.
    pub fn mock(secret: &[u8], user: &str) -> Verifier {
        let salt = hmac(secret, &[b"salt", user.as_bytes()]);
        Verifier {
            iterations: NonZeroU32::new(ITERATIONS).expect("invariant: there are rounds"),
            salt: salt[..SALT_BYTES].to_vec(),
            stored_key: hmac(secret, &[b"stored key", user.as_bytes()]),
            server_key: hmac(secret, &[b"server key", user.as_bytes()]),
        }
    }

    /// Whether it is one of this password. For those who are sent the password itself, as the
    /// console is: over PostgreSQL's protocol a server sees none.
    pub fn is_of(&self, password: &str) -> bool {
        let other = Verifier::salted(password, &self.salt, self.iterations);
        crate::same(&self.stored_key, &other.stored_key)
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[cfg(any(test, feature = "count"))]
        crate::count::note(|steps| steps.verifiers += 1);
        write!(
            f,
            "{NAME}${}:{}${}:{}",
            self.iterations,
            STANDARD.encode(&self.salt),
            STANDARD.encode(self.stored_key),
            STANDARD.encode(self.server_key)
        )
    }
}

/// The text is not a verifier.
#[derive(Debug, PartialEq, Eq)]
pub struct NoVerifier;

impl FromStr for Verifier {
    type Err = NoVerifier;

    fn from_str(text: &str) -> Result<Verifier, NoVerifier> {
        #[cfg(any(test, feature = "count"))]
        crate::count::note(|steps| steps.verifiers += 1);
        let parse = || {
            let rest = text.strip_prefix(NAME)?.strip_prefix('$')?;
            let (cost, keys) = rest.split_once('$')?;
            let (iterations, salt) = cost.split_once(':')?;
            let (stored, server) = keys.split_once(':')?;
            let key = |text: &str| STANDARD.decode(text).ok()?.try_into().ok();
            Some(Verifier {
                iterations: iterations.parse().ok()?,
                salt: STANDARD.decode(salt).ok()?,
                stored_key: key(stored)?,
                server_key: key(server)?,
            })
        };
        parse().ok_or(NoVerifier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 stored of `pencil`, with the salt of RFC 7677's example.
    #[test]
    fn the_example_of_the_rfc() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let made = Verifier::salted("pencil", &salt, NonZeroU32::new(4096).unwrap());
        let text = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
                    WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                    wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        assert_eq!(made.to_string(), text);
        assert_eq!(text.parse(), Ok(made.clone()));
        assert!(made.is_of("pencil") && !made.is_of("Pencil"));
        assert_eq!(format!("{made:?}"), "Verifier(..)");
    }

    #[test]
    fn passwords_are_normalized() {
        let verifier = Verifier::of_password("I\u{ad}X \u{2168}").unwrap();
        assert!(verifier.is_of("IX IX"));
        // Forbidden by SASLprep, and used as it is.
        let verifier = Verifier::of_password("bell\u{7}").unwrap();
        assert!(verifier.is_of("bell\u{7}") && !verifier.is_of("bell"));
        let other = Verifier::of_password("bell\u{7}").unwrap();
        assert_ne!(verifier.salt, other.salt);
    }

    #[test]
    fn what_is_no_verifier_is_a_password() {
        for text in [
            "",
            "SCRAM-SHA-256",
            "SCRAM-SHA-256$0:W22ZaJ0SNY7soEsUEjb6gQ==$\
             WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
             wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=",
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d:wfPL",
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==",
        ] {
            assert_eq!(text.parse::<Verifier>(), Err(NoVerifier), "{text}");
        }
        assert!(is_md5("md5d3b07384d113edec49eaa6238ad5ff00"));
        assert!(!is_md5("md5") && !is_md5("md5 of something with thirty-two bytes"));
    }

    #[test]
    fn an_unknown_user_has_the_same_salt_each_time() {
        let mock = Verifier::mock(b"secret", "nobody");
        assert_eq!(mock, Verifier::mock(b"secret", "nobody"));
        assert_ne!(mock.salt, Verifier::mock(b"secret", "nobodz").salt);
        assert_ne!(mock.salt, Verifier::mock(b"other", "nobody").salt);
        let real = Verifier::of_password("x").unwrap();
        assert_eq!(
            (mock.salt.len(), mock.iterations),
            (real.salt.len(), real.iterations)
        );
    }
}
