//! Whether a client is who it says it is: the rule for it, its certificate, its password.
//!
//! **Invariant.** What a client can see of a wrong password and of a user who does not exist, or
//! has no password, is the same: the messages, their text, and the work between them.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scram::{Binding, Exchange, Mechanism, Proof};
use sql::{Database, Error};

use crate::backend;
use crate::connection::{Input, InputEnd, Output};
use crate::guesses::{Guesses, Proving};
use crate::rules::{Asking, Certificate, Method, Rule, Rules};
use crate::startup::Startup;
use crate::tls::TlsSession;

/// What AuthenticationSASL, its continuation and its end are called in the message `R`.
const SASL: u32 = 10;
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;
/// The message by which a client proves itself.
const PROOF: u8 = b'p';

/// Why a client is not let in.
pub enum Refusal {
    /// The client hears this error.
    Told(Error),
    /// The client is gone, or has said nothing in time.
    Gone,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Told(error)
    }
}

/// A client at the door.
pub struct Client<'a> {
    pub database: &'a Database,
    pub rules: &'a Rules,
    pub guesses: &'a Arc<Guesses>,
    pub startup: &'a Startup,
    pub peer: SocketAddr,
    /// If it speaks TLS: the session, and what the server's certificate offers to bind to.
    pub tls: Option<(&'a RefCell<TlsSession>, Binding<'a>)>,
    pub stream: &'a TcpStream,
    /// The client proves itself until then.
    pub deadline: Instant,
}

impl Client<'_> {
    /// Lets the client prove itself as its rule says. What ends a successful exchange stays in
    /// `output`, to be sent with what follows.
    pub fn authenticate(&self, input: &mut Input, output: &mut Output) -> Result<(), Refusal> {
        self.authenticate_by(|| self.prove(input, output))
    }

    /// Asks for what the rule says. `prove` is how the client proves its password, if the rule
    /// wants one.
    pub fn authenticate_by(
        &self,
        prove: impl FnOnce() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let rule = self.rule()?;
        if rule.certificate != Certificate::None && !self.shows_certificate() {
            let why = "connection requires a valid client certificate";
            return Err(Error::new("28000", why).into());
        }
        match rule.method {
            Method::Trust | Method::Certificate => {}
            Method::Scram => prove()?,
            Method::Reject => {
                return Err(self.no_entry("pg_hba.conf rejects connection").into());
            }
        }
        if rule.certificate == Certificate::Named && !self.has_name_in_certificate() {
            return Err(match rule.method {
                Method::Scram => self.wrong_password(),
                _ => Error::new(
                    "28000",
                    format!(
                        "certificate authentication failed for user \"{}\"",
                        self.startup.user
                    ),
                ),
            }
            .into());
        }
        Ok(())
    }

    fn rule(&self) -> Result<&Rule, Error> {
        let asking = Asking {
            address: self.address(),
            is_encrypted: self.tls.is_some(),
            user: &self.startup.user,
            database: &self.startup.database,
        };
        let rule = self.rules.find(asking);
        rule.ok_or_else(|| {
            self.no_entry("no pg_hba.conf entry")
                .hint("The rules are access_rules and trusted_clients in braid.toml.")
        })
    }

    fn address(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }

    fn no_entry(&self, what: &str) -> Error {
        let encryption = match self.tls {
            Some(_) => "SSL encryption",
            None => "no encryption",
        };
        let Startup { user, database, .. } = self.startup;
        let host = self.address();
        Error::new(
            "28000",
            format!(
                "{what} for host \"{host}\", user \"{user}\", database \"{database}\", {encryption}"
            ),
        )
    }

    fn shows_certificate(&self) -> bool {
        self.tls
            .is_some_and(|(session, _)| session.borrow().has_client_certificate())
    }

    fn has_name_in_certificate(&self) -> bool {
        let name = self
            .tls
            .and_then(|(session, _)| session.borrow().client_name());
        name.is_some_and(|name| name == self.startup.user)
    }

    /// SCRAM-SHA-256, with channel binding if the connection has something to bind to.
    fn prove(&self, input: &mut Input, output: &mut Output) -> Result<(), Refusal> {
        let began = self.guesses.begin(self.address(), Instant::now());
        let proving = began.ok_or_else(too_many)?;
        let binding = self.tls.and_then(|(_, binding)| binding);
        backend::authentication(&mut output.buffer, SASL, |out| {
            let offered = [binding.map(|_| Mechanism::Plus), Some(Mechanism::Plain)];
            for mechanism in offered.into_iter().flatten() {
                backend::c_string(out, mechanism.name());
            }
            out.push(0);
        });
        output.flush().map_err(|_| Refusal::Gone)?;
        let message = self.receive(input, "SASL response")?;
        let (mechanism, first) = initial_response(input.bytes(message))?;
        let user = &self.startup.user;
        let known = self.database.verifier(user)?;
        let (exchange, server_first) =
            Exchange::begin(mechanism, binding, known, first).map_err(failed)?;
        backend::authentication(&mut output.buffer, SASL_CONTINUE, |out| {
            out.extend_from_slice(server_first.as_bytes());
        });
        output.flush().map_err(|_| Refusal::Gone)?;
        let message = self.receive(input, "SASL response")?;
        if !proving.may_guess(Instant::now()) {
            return Err(too_many().into());
        }
        let body = &input.bytes(message)[crate::message::HEADER_BYTES..];
        match exchange.finish(body).map_err(failed)? {
            Proof::Given(last) => {
                backend::authentication(&mut output.buffer, SASL_FINAL, |out| {
                    out.extend_from_slice(last.as_bytes());
                });
                Ok(())
            }
            Proof::Wrong => Err(self.wrong_guess(proving, |left| {
                if self.stream.set_read_timeout(Some(left)).is_err() {
                    return false;
                }
                match input.receive() {
                    Ok(()) => input.discard(),
                    Err(InputEnd::TimedOut) => {}
                    Err(_) => return false,
                }
                true
            })),
        }
    }

    /// Compares a password that was sent as it is. `pass` is as in [`Client::wrong_guess`].
    pub fn compare(
        &self,
        password: &str,
        pass: impl FnMut(Duration) -> bool,
    ) -> Result<(), Refusal> {
        let began = self.guesses.begin(self.address(), Instant::now());
        let proving = began.ok_or_else(too_many)?;
        let is_right = self.database.verifier(&self.startup.user)?.is_of(password);
        if !proving.may_guess(Instant::now()) {
            return Err(too_many().into());
        }
        match is_right {
            true => Ok(()),
            false => Err(self.wrong_guess(proving, pass)),
        }
    }

    /// Makes the client wait for its answer, which says no more than that it failed. `pass` lets at
    /// most so much time pass; a client that leaves ends the wait, for which it gives false, and so
    /// does a stop of the server. What the client says meanwhile is heard by nobody.
    fn wrong_guess(&self, proving: Proving, mut pass: impl FnMut(Duration) -> bool) -> Refusal {
        tracing::warn!(
            "password authentication failed for user {:?} from {}",
            self.startup.user,
            self.peer
        );
        let now = Instant::now();
        let deadline = now + proving.failed(now);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return self.wrong_password().into();
            }
            if !pass(left) {
                return Refusal::Gone;
            }
        }
    }

    fn wrong_password(&self) -> Error {
        Error::new(
            "28P01",
            format!(
                "password authentication failed for user \"{}\"",
                self.startup.user
            ),
        )
    }

    /// The next message, which must be one of a proof.
    fn receive(&self, input: &mut Input, wanted: &str) -> Result<Range<usize>, Refusal> {
        loop {
            // A client that nobody knows yet is to send nothing long: any other kind of message is
            // refused before its length is looked at.
            if let Some(tag) = input.first().filter(|tag| *tag != PROOF) {
                let why = format!("expected {wanted}, got message type {tag}");
                return Err(Error::new("08P01", why).into());
            }
            let next = input.next().map_err(|v| Error::new("08P01", v.message))?;
            if let Some(message) = next {
                return Ok(message);
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return Err(Refusal::Gone);
            }
            let limited = self.stream.set_read_timeout(Some(left));
            limited.map_err(|_| Refusal::Gone)?;
            input.receive().map_err(|_| Refusal::Gone)?;
        }
    }
}

fn too_many() -> Error {
    let why = "too many clients of this address have failed to prove their passwords";
    Error::new("53300", why).hint("Try again later.")
}

/// SASLInitialResponse: the mechanism, and the first message of the exchange.
fn initial_response(message: &[u8]) -> Result<(Mechanism, &[u8]), Error> {
    let malformed = || Error::new("08P01", "malformed SASLInitialResponse message");
    let body = message
        .get(crate::message::HEADER_BYTES..)
        .ok_or_else(malformed)?;
    let end = body.iter().position(|&b| b == 0).ok_or_else(malformed)?;
    let mechanism = Mechanism::find(&body[..end]).ok_or_else(|| {
        Error::new(
            "08P01",
            "client selected an invalid SASL authentication mechanism",
        )
    })?;
    let (length, first) = body[end + 1..]
        .split_first_chunk::<4>()
        .ok_or_else(malformed)?;
    // -1, for no message at all, is no length either: SCRAM begins with the client.
    match usize::try_from(i32::from_be_bytes(*length)) {
        Ok(length) if length == first.len() => Ok((mechanism, first)),
        _ => Err(malformed()),
    }
}

/// The exchange could not go on. Nobody has learned anything of a password by it.
fn failed(error: scram::Error) -> Error {
    let message = error.to_string();
    match error {
        scram::Error::Malformed(why) => Error::new("08P01", message).detail(format!("{why}.")),
        scram::Error::Negotiation => Error::new("28000", message).detail(
            "The client supports SCRAM channel binding but thinks the server does not.  \
             However, this server does support channel binding.",
        ),
        scram::Error::Binding => Error::new("28000", message),
        scram::Error::Identity | scram::Error::Extension => Error::new("0A000", message),
        scram::Error::Random => Error::new("58030", message),
        scram::Error::NoBindingData | scram::Error::UnaskedBinding | scram::Error::BindingType => {
            Error::new("08P01", message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, seed};

    fn message(body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        backend::message(&mut out, PROOF, |out| out.extend_from_slice(body));
        out
    }

    #[test]
    fn the_first_response_names_its_mechanism() {
        let good = message(b"SCRAM-SHA-256\0\0\0\0\x03n,,");
        let read = initial_response(&good).ok();
        assert_eq!(read, Some((Mechanism::Plain, &b"n,,"[..])));
        for wrong in [
            &b""[..],
            b"SCRAM-SHA-256",
            b"SCRAM-SHA-1\0\0\0\0\x03n,,",
            b"SCRAM-SHA-256\0\xff\xff\xff\xff",
            b"SCRAM-SHA-256\0\0\0\0\x04n,,",
            b"SCRAM-SHA-256\0\0\0\0\x02n,,",
        ] {
            let error = initial_response(&message(wrong)).unwrap_err();
            assert_eq!(error.sqlstate(), "08P01", "{wrong:?}");
        }
    }

    #[test]
    fn fuzz_first_responses() {
        let mut random = Random::new(seed("BRAID_FUZZ_SEED"));
        let mut read = 0;
        for _ in 0..50_000 {
            let mut bytes = message(b"SCRAM-SHA-256-PLUS\0\0\0\0\x03n,,");
            for _ in 0..random.below(4) {
                let at = random.below(bytes.len());
                match random.below(3) {
                    0 => bytes[at] = random.next() as u8,
                    1 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, random.next() as u8),
                }
            }
            read += usize::from(initial_response(&bytes).is_ok());
        }
        assert!(read > 0, "even undamaged ones were refused");
    }
}
