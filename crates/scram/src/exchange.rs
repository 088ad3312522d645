//! The exchange of four messages: client-first, server-first, client-final, server-final.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::verifier::Verifier;
use crate::{KEY_BYTES, hmac, random_bytes, same, sha256};

/// Random bytes in the server's nonce, as in PostgreSQL.
const NONCE_BYTES: usize = 18;
const BINDING_TYPE: &str = "tls-server-end-point";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    Plain,
    /// With channel binding.
    Plus,
}

impl Mechanism {
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "SCRAM-SHA-256",
            Mechanism::Plus => "SCRAM-SHA-256-PLUS",
        }
    }

    pub fn find(name: &[u8]) -> Option<Mechanism> {
        [Mechanism::Plain, Mechanism::Plus]
            .into_iter()
            .find(|m| m.name().as_bytes() == name)
    }
}

/// What the connection offers to bind a proof to: the `tls-server-end-point` hash of the server's
/// certificate, or nothing.
pub type Binding<'a> = Option<&'a [u8]>;

/// Why an exchange cannot go on. A wrong password is no error: see [`Proof`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("malformed SCRAM message")]
    Malformed(&'static str),
    #[error(
        "client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding data"
    )]
    NoBindingData,
    #[error(
        "client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes channel binding data"
    )]
    UnaskedBinding,
    #[error("unsupported SCRAM channel-binding type")]
    BindingType,
    /// The client could bind, and believes that the server cannot.
    #[error("SCRAM channel binding negotiation error")]
    Negotiation,
    /// The client sees another certificate than the one that is shown here.
    #[error("SCRAM channel binding check failed")]
    Binding,
    #[error("client uses authorization identity, but it is not supported")]
    Identity,
    #[error("client requires an unsupported SCRAM extension")]
    Extension,
    #[error("the system gives no random bytes")]
    Random,
}

/// How an exchange ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Proof {
    /// The client knows the password. The text is server-final, which proves the server.
    Given(String),
    Wrong,
}

/// An exchange after its first message.
pub struct Exchange {
    verifier: Verifier,
    /// What client-final must have after `c=`.
    binding: Binds,
    /// client-first-bare, a comma, server-first: the beginning of what is signed.
    signed: String,
    /// The client's nonce and ours.
    nonce: String,
}

/// What the attribute `c` must be, in base64.
struct Binds {
    header: String,
    /// The header and the hash of the certificate differ in what their mismatch means.
    has_data: bool,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exchange(..)")
    }
}

impl Exchange {
    /// Takes client-first. Returns the exchange and server-first.
    pub fn begin(
        mechanism: Mechanism,
        binding: Binding<'_>,
        verifier: Verifier,
        first: &[u8],
    ) -> Result<(Exchange, String), Error> {
        let own = STANDARD.encode(random_bytes::<NONCE_BYTES>()?);
        Exchange::begin_with(mechanism, binding, verifier, first, &own)
    }

    fn begin_with(
        mechanism: Mechanism,
        binding: Binding<'_>,
        verifier: Verifier,
        first: &[u8],
        own: &str,
    ) -> Result<(Exchange, String), Error> {
        let first = text(first)?;
        let (flag, rest) = part(first)?;
        let (identity, bare) = part(rest)?;
        let binds = binds(mechanism, binding, flag)?;
        match identity {
            "" => {}
            _ if identity.starts_with("a=") => return Err(Error::Identity),
            _ => return Err(Error::Malformed("unexpected attribute")),
        }
        if bare.starts_with("m=") {
            return Err(Error::Extension);
        }
        // The user is that of the startup packet; libpq sends an empty name here.
        let (_, rest) = attribute(bare, 'n')?;
        let (theirs, rest) = attribute(rest, 'r')?;
        extensions(rest)?;
        let is_printable = |b: u8| (0x21..=0x7e).contains(&b) && b != b',';
        if theirs.is_empty() || !theirs.bytes().all(is_printable) {
            return Err(Error::Malformed("non-printable characters in SCRAM nonce"));
        }
        let nonce = format!("{theirs}{own}");
        let server_first = format!(
            "r={nonce},s={},i={}",
            STANDARD.encode(&verifier.salt),
            verifier.iterations
        );
        let exchange = Exchange {
            verifier,
            binding: binds,
            signed: format!("{bare},{server_first}"),
            nonce,
        };
        Ok((exchange, server_first))
    }

    /// Takes client-final.
    pub fn finish(self, last: &[u8]) -> Result<Proof, Error> {
        let last = text(last)?;
        let (binding, rest) = attribute(last, 'c')?;
        let (nonce, mut rest) = attribute(rest, 'r')?;
        if binding != self.binding.header {
            return Err(match self.binding.has_data {
                true => Error::Binding,
                false => Error::Malformed("unexpected SCRAM channel-binding attribute"),
            });
        }
        if nonce != self.nonce {
            return Err(Error::Malformed("nonce does not match"));
        }
        // The proof comes last, after any extension.
        while !rest.starts_with("p=") {
            let (extension, more) = part(rest)?;
            extensions(extension)?;
            rest = more;
        }
        let without_proof = &last[..last.len() - rest.len() - 1];
        let proof = STANDARD
            .decode(&rest[2..])
            .map_err(|_| Error::Malformed("malformed proof"))?;
        let Ok(proof) = <[u8; KEY_BYTES]>::try_from(proof) else {
            return Err(Error::Malformed("malformed proof"));
        };
        let signed = [self.signed.as_bytes(), b",", without_proof.as_bytes()];
        let signature = hmac(&self.verifier.stored_key, &signed);
        let client_key: [u8; KEY_BYTES] = std::array::from_fn(|i| proof[i] ^ signature[i]);
        // What proves the server is computed in either case, so that both take as long.
        let server = hmac(&self.verifier.server_key, &signed);
        Ok(
            match same(&sha256(&client_key), &self.verifier.stored_key) {
                true => Proof::Given(format!("v={}", STANDARD.encode(server))),
                false => Proof::Wrong,
            },
        )
    }
}

/// What the client has to send as its channel binding, by the flag in client-first.
fn binds(mechanism: Mechanism, binding: Binding<'_>, flag: &str) -> Result<Binds, Error> {
    let encoded = |header: &str, data: &[u8]| {
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(data);
        STANDARD.encode(bytes)
    };
    let without = |header| Binds {
        header: encoded(header, b""),
        has_data: false,
    };
    match (mechanism, flag, binding) {
        (Mechanism::Plus, "n" | "y", _) => Err(Error::NoBindingData),
        (Mechanism::Plain, "n", _) => Ok(without("n,,")),
        (Mechanism::Plain, "y", None) => Ok(without("y,,")),
        (Mechanism::Plain, "y", Some(_)) => Err(Error::Negotiation),
        (_, flag, _) if !flag.starts_with("p=") => {
            Err(Error::Malformed("unexpected channel-binding flag"))
        }
        (Mechanism::Plain, ..) => Err(Error::UnaskedBinding),
        (Mechanism::Plus, flag, Some(hash)) if &flag[2..] == BINDING_TYPE => Ok(Binds {
            header: encoded(&format!("p={BINDING_TYPE},,"), hash),
            has_data: true,
        }),
        (Mechanism::Plus, ..) => Err(Error::BindingType),
    }
}

fn text(message: &[u8]) -> Result<&str, Error> {
    let text = std::str::from_utf8(message).map_err(|_| Error::Malformed("not valid UTF-8"))?;
    match text.contains('\0') {
        true => Err(Error::Malformed("a zero byte")),
        false => Ok(text),
    }
}

/// Up to the next comma, and what follows it.
fn part(text: &str) -> Result<(&str, &str), Error> {
    text.split_once(',')
        .ok_or(Error::Malformed("the message ends early"))
}

/// The value of the attribute of this name, which comes next, and what follows its comma.
fn attribute(text: &str, name: char) -> Result<(&str, &str), Error> {
    let (attribute, rest) = text.split_once(',').unwrap_or((text, ""));
    let value = attribute
        .strip_prefix(name)
        .and_then(|a| a.strip_prefix('='))
        .ok_or(Error::Malformed("an attribute is missing"))?;
    Ok((value, rest))
}

/// Optional attributes at the end of a message have no meaning here, but a form.
fn extensions(text: &str) -> Result<(), Error> {
    let is_attribute = |part: &str| {
        let mut bytes = part.bytes();
        bytes.next().is_some_and(|b| b.is_ascii_alphabetic()) && bytes.next() == Some(b'=')
    };
    match text.is_empty() || text.split(',').all(is_attribute) {
        true => Ok(()),
        false => Err(Error::Malformed("malformed attribute")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seam::Rng;
    use testkit::seeds::seed;

    fn pencil() -> Verifier {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        Verifier::salted("pencil", &salt, 4096.try_into().unwrap())
    }

    const FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const OWN: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const LAST: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    fn begin(first: &str) -> Result<(Exchange, String), Error> {
        Exchange::begin_with(Mechanism::Plain, None, pencil(), first.as_bytes(), OWN)
    }

    /// RFC 7677, 3.
    #[test]
    fn the_example_of_the_rfc() {
        let (exchange, server_first) = begin(FIRST).unwrap();
        assert_eq!(
            server_first,
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        assert_eq!(
            exchange.finish(LAST.as_bytes()),
            Ok(Proof::Given(
                "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".to_string()
            ))
        );
    }

    /// What a client answers that knows the password.
    fn answer(first: &str, server_first: &str, password: &str, header: &[u8]) -> String {
        let bare = first.splitn(3, ',').nth(2).unwrap();
        let (nonce, rest) = server_first.split_once(',').unwrap();
        let (salt, rounds) = rest.split_once(',').unwrap();
        let salt = STANDARD.decode(&salt[2..]).unwrap();
        let mut salted = [0; KEY_BYTES];
        ring::pbkdf2::derive(
            ring::pbkdf2::PBKDF2_HMAC_SHA256,
            rounds[2..].parse().unwrap(),
            &salt,
            password.as_bytes(),
            &mut salted,
        );
        let key = hmac(&salted, &[b"Client Key"]);
        let last = format!("c={},{nonce}", STANDARD.encode(header));
        let all = format!("{bare},{server_first},{last}");
        let signature = hmac(&sha256(&key), &[all.as_bytes()]);
        let proof: Vec<u8> = key.iter().zip(signature).map(|(k, s)| k ^ s).collect();
        format!("{last},p={}", STANDARD.encode(proof))
    }

    #[test]
    fn a_wrong_password_and_an_unknown_user_fail_alike() {
        for (verifier, password) in [
            (pencil(), "pen"),
            (Verifier::mock(b"secret", "user"), "pencil"),
        ] {
            let (exchange, server_first) =
                Exchange::begin(Mechanism::Plain, None, verifier, FIRST.as_bytes()).unwrap();
            let last = answer(FIRST, &server_first, password, b"n,,");
            assert_eq!(exchange.finish(last.as_bytes()), Ok(Proof::Wrong));
        }
    }

    #[test]
    fn a_proof_is_bound_to_the_certificate() {
        let first = "p=tls-server-end-point,,n=,r=abc";
        let header = |hash: &[u8]| [b"p=tls-server-end-point,,", hash].concat();
        let begin = |mechanism, binding, first: &str| {
            Exchange::begin(mechanism, binding, pencil(), first.as_bytes())
        };
        let seen = |hash: &[u8]| {
            let (exchange, server_first) = begin(Mechanism::Plus, Some(b"hash"), first).unwrap();
            let last = answer(first, &server_first, "pencil", &header(hash));
            exchange.finish(last.as_bytes())
        };
        assert!(matches!(seen(b"hash"), Ok(Proof::Given(_))));
        assert_eq!(seen(b"hush"), Err(Error::Binding));
        for (mechanism, binding, first, error) in [
            (
                Mechanism::Plus,
                Some(&b"h"[..]),
                "n,,n=,r=a",
                Error::NoBindingData,
            ),
            (
                Mechanism::Plus,
                Some(b"h"),
                "y,,n=,r=a",
                Error::NoBindingData,
            ),
            (
                Mechanism::Plus,
                Some(b"h"),
                "p=tls-unique,,n=,r=a",
                Error::BindingType,
            ),
            (Mechanism::Plus, None, first, Error::BindingType),
            (Mechanism::Plain, Some(b"h"), first, Error::UnaskedBinding),
            // The offer was removed on its way to the client.
            (
                Mechanism::Plain,
                Some(b"h"),
                "y,,n=,r=a",
                Error::Negotiation,
            ),
        ] {
            let Err(e) = begin(mechanism, binding, first) else {
                panic!("{first} was taken")
            };
            assert_eq!(e, error, "{first}");
        }
        assert!(begin(Mechanism::Plain, None, "y,,n=,r=a").is_ok());
    }

    #[test]
    fn broken_messages_are_refused() {
        for (first, error) in [
            ("", None),
            ("n", None),
            ("n,", None),
            ("x,,n=,r=a", None),
            ("n,a=other,n=,r=a", Some(Error::Identity)),
            ("n,b=other,n=,r=a", None),
            ("n,,m=ext,n=,r=a", Some(Error::Extension)),
            ("n,,n=,r=", None),
            ("n,,n=,r=a b", None),
            ("n,,r=a", None),
            ("n,,n=,r=a,nonsense", None),
        ] {
            let Err(e) = begin(first) else {
                panic!("{first:?} was taken")
            };
            match error {
                Some(wanted) => assert_eq!(e, wanted, "{first:?}"),
                None => assert!(matches!(e, Error::Malformed(_)), "{first:?}: {e}"),
            }
        }
        let nonce = format!("rOprNGfwEbeRWgbNEkqO{OWN}");
        for last in [
            String::new(),
            "c=biws".into(),
            format!("c=biws,r={nonce}"),
            format!("c=biws,r={nonce},p=x"),
            format!("c=biws,r={nonce},p=AAAA"),
            format!("c=eSws,r={nonce},{}", &LAST[LAST.len() - 46..]),
            format!("c=biws,r={nonce}x,{}", &LAST[LAST.len() - 46..]),
            format!("{LAST}\0"),
        ] {
            let (exchange, _) = begin(FIRST).unwrap();
            let finished = exchange.finish(last.as_bytes());
            assert!(
                matches!(finished, Err(Error::Malformed(_))),
                "{last}: {finished:?}"
            );
        }
        // An extension before the proof is signed with the rest.
        let (exchange, server_first) = begin(FIRST).unwrap();
        let honest = answer(FIRST, &server_first, "pencil", b"n,,");
        let extended = honest.replace(",p=", ",x=1,p=");
        assert_eq!(exchange.finish(extended.as_bytes()), Ok(Proof::Wrong));
    }

    /// Exchanges of the fuzz test. One that comes to a proof takes milliseconds in a debug build.
    const ROUNDS: u32 = 2_000;

    /// Damaged messages: each is answered, and none but the honest one proves the password.
    #[test]
    fn fuzz_messages() {
        let seed = seed("BRAID_FUZZ_SEED");
        let mut random = Rng(seed);
        let (mut proved, mut finished) = (0, 0);
        for _ in 0..ROUNDS {
            let mut first = FIRST.as_bytes().to_vec();
            let mut last = LAST.as_bytes().to_vec();
            let damaged = match random.below(2) {
                0 => &mut first,
                _ => &mut last,
            };
            for _ in 0..random.below(4) {
                let at = random.index(damaged.len().max(1));
                match random.below(4) {
                    0 if at < damaged.len() => damaged[at] = random.next() as u8,
                    1 => damaged.truncate(at),
                    2 => damaged.insert(at, random.pick(b",=pn\0")),
                    _ => damaged.extend_from_slice(b",p=AAAA"),
                }
            }
            let (plain, binding) = match random.below(3) {
                0 => (Mechanism::Plus, Some(&b"hash"[..])),
                _ => (Mechanism::Plain, None),
            };
            let begun = Exchange::begin_with(plain, binding, pencil(), &first, OWN);
            let Ok((exchange, _)) = begun else { continue };
            finished += 1;
            if let Ok(Proof::Given(_)) = exchange.finish(&last) {
                assert_eq!((&first[..], &last[..]), (FIRST.as_bytes(), LAST.as_bytes()));
                proved += 1;
            }
        }
        assert!(proved > 0 && finished > proved, "{proved} of {finished}");
    }
}
