//! Tokens: what a browser shows after its login.
//!
//! A token says a user and until when it is good, under a seal of the database ([`Door::seal`])
//! that also covers the address of the browser. Instances keep no tokens, so each takes those of
//! the others. A token is worth nothing at another address, after [`LIFE_SECONDS`], or once the
//! user has another password or may not connect any more.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use server::{Caller, Door};
use sql::Error;

/// How long a token is good: a working day.
pub const LIFE_SECONDS: u64 = 12 * 3600;
/// What is sealed here, so that no seal for another purpose is taken for a token.
const PURPOSE: &[u8] = b"console token";

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

fn seal(door: &Door, caller: &Caller, user: &str, until: u64) -> Result<[u8; 32], Error> {
    let address = caller.peer().ip().to_canonical().to_string();
    door.seal(user, &[PURPOSE, address.as_bytes(), &until.to_be_bytes()])
}

/// A token for a user who has proved itself.
pub fn made(door: &Door, caller: &Caller, user: &str) -> Result<String, Error> {
    let until = now() + LIFE_SECONDS;
    let seal = seal(door, caller, user, until)?;
    Ok(written(user, until, &seal))
}

/// The user of a token; none if it is not good.
pub fn user(door: &Door, caller: &Caller, token: &str) -> Result<Option<String>, Error> {
    let Some((user, until, shown)) = read(token) else {
        return Ok(None);
    };
    let own = seal(door, caller, &user, until)?;
    Ok((same(&own, &shown) && until > now()).then_some(user))
}

fn written(user: &str, until: u64, seal: &[u8; 32]) -> String {
    let (user, seal) = (URL_SAFE_NO_PAD.encode(user), URL_SAFE_NO_PAD.encode(seal));
    format!("{user}.{until}.{seal}")
}

fn read(token: &str) -> Option<(String, u64, [u8; 32])> {
    let mut parts = token.split('.');
    let (user, until, seal) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let user = String::from_utf8(URL_SAFE_NO_PAD.decode(user).ok()?).ok()?;
    let seal = URL_SAFE_NO_PAD.decode(seal).ok()?.try_into().ok()?;
    Some((user, until.parse().ok()?, seal))
}

/// Compares in a time that does not depend on where the bytes differ.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let differing = a.iter().zip(b).fold(0, |d, (x, y)| d | (x ^ y));
    std::hint::black_box(differing) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_written() {
        let token = written("an.n", 7, &[9; 32]);
        assert_eq!(read(&token), Some(("an.n".to_string(), 7, [9; 32])));
        for wrong in ["", "a.b", "YQ.7.YQ", "YQ.-1.YQ", &format!("{token}.x")] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert!(same(&[1; 32], &[1; 32]) && !same(&[1; 32], &[2; 32]));
    }
}
