//! Tokens: what a browser shows after its login.
//!
//! A token says a user, how it proved itself and until when it is good, under a seal of the
//! database ([`Door::seal`]) that also covers the address of the browser. Instances keep no tokens,
//! so each takes those of the others. A token is worth nothing at another address, after
//! [`LIFE_SECONDS`], or once the user has another password or may not connect any more.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use server::{Caller, Door, Proof};
use sql::Error;

/// How long a token is good: a working day.
pub const LIFE_SECONDS: u64 = 12 * 3600;
/// What is sealed here, so that no seal for another purpose is taken for a token.
const PURPOSE: &[u8] = b"console token";

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// What a token says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    pub user: String,
    pub proof: Proof,
    /// In seconds since 1970.
    until: u64,
}

fn seal(door: &Door, caller: &Caller, said: &Said) -> Result<[u8; 32], Error> {
    let address = caller.peer().ip().to_canonical().to_string();
    let until = said.until.to_be_bytes();
    let proof = letter(said.proof);
    let parts = [PURPOSE, address.as_bytes(), &until, proof.as_bytes()];
    door.seal(&said.user, &parts)
}

fn letter(proof: Proof) -> &'static str {
    match proof {
        Proof::None => "n",
        Proof::Password => "p",
    }
}

/// A token for a user who has proved itself.
pub fn made(door: &Door, caller: &Caller, user: &str, proof: Proof) -> Result<String, Error> {
    let said = Said {
        user: user.to_string(),
        proof,
        until: now() + LIFE_SECONDS,
    };
    let seal = seal(door, caller, &said)?;
    Ok(written(&said, &seal))
}

/// What a token says; none if it is not good.
pub fn opened(door: &Door, caller: &Caller, token: &str) -> Result<Option<Said>, Error> {
    let Some((said, shown)) = read(token) else {
        return Ok(None);
    };
    let own = seal(door, caller, &said)?;
    Ok((same(&own, &shown) && said.until > now()).then_some(said))
}

fn written(said: &Said, seal: &[u8; 32]) -> String {
    let (user, seal) = (
        URL_SAFE_NO_PAD.encode(&said.user),
        URL_SAFE_NO_PAD.encode(seal),
    );
    format!("{user}.{}.{}.{seal}", said.until, letter(said.proof))
}

fn read(token: &str) -> Option<(Said, [u8; 32])> {
    let mut parts = token.split('.');
    let (user, until) = (parts.next()?, parts.next()?);
    let (proof, seal) = (parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let said = Said {
        user: String::from_utf8(URL_SAFE_NO_PAD.decode(user).ok()?).ok()?,
        proof: [Proof::None, Proof::Password]
            .into_iter()
            .find(|p| letter(*p) == proof)?,
        until: until.parse().ok()?,
    };
    let seal = URL_SAFE_NO_PAD.decode(seal).ok()?.try_into().ok()?;
    Some((said, seal))
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
        let said = Said {
            user: "an.n".to_string(),
            proof: Proof::Password,
            until: 7,
        };
        let token = written(&said, &[9; 32]);
        assert_eq!(read(&token), Some((said, [9; 32])));
        for wrong in [
            "",
            "a.b",
            "YQ.7.p.YQ",
            "YQ.7.x.YQ",
            "YQ.-1.p.YQ",
            &format!("{token}.x"),
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert!(same(&[1; 32], &[1; 32]) && !same(&[1; 32], &[2; 32]));
    }
}
