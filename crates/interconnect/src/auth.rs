//! The proof that begins every connection. Each side shows that it knows the cluster secret, over a
//! number that the other side has just drawn.
//!
//! ```text
//! connector                                      acceptor
//! greeting: magic, version, nonce     ->
//!                                     <-         greeting: magic, version, nonce
//! identity, proof                     ->
//!                                     <-         identity with verdict, proof
//! ```
//!
//! A proof is an HMAC-SHA256 of the role, both nonces, the exporter of the TLS session if there is
//! one, and both identities as far as they are known. The role keeps a proof from being played back
//! to its sender. The nonces keep it from being played to anybody later. The exporter keeps it from
//! being relayed through a stranger that ends the TLS sessions in between.
//!
//! **Invariants.** A stranger is told nothing: before the connector's proof the acceptor sends
//! random bytes only. Every message has a fixed size. This module is bytes in, bytes out.

use crate::frame::{Cluster, Lane, Member};
use block::InstanceId;
use ring::{hmac, rand};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::{Error, Result};

pub(crate) const GREETING_BYTES: usize = 40;
pub(crate) const IDENTITY_BYTES: usize = 24;
pub(crate) const PROOF_BYTES: usize = 32;
const MAGIC: u32 = u32::from_le_bytes(*b"BRHS");
/// The shortest secret that is accepted. Shorter secrets could be guessed from a recorded proof.
const MIN_SECRET_BYTES: usize = 16;
const NEW_SECRET_BYTES: usize = 32;

/// The cluster secret: all instances of a cluster know it and nobody else does.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    pub fn new(bytes: &[u8]) -> Result<Secret> {
        if bytes.len() < MIN_SECRET_BYTES {
            return Err(Error::Config(format!(
                "the cluster secret has {} bytes, at least {MIN_SECRET_BYTES} are needed",
                bytes.len()
            )));
        }
        Ok(Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// A number that tells this secret from others and gives nothing of the secret away.
    pub fn fingerprint(&self, database: u64) -> u64 {
        let mut text = b"braid cluster secret".to_vec();
        text.extend(database.to_le_bytes());
        let tag = hmac::sign(&self.0, &text);
        let mut first = [0; 8];
        first.copy_from_slice(&tag.as_ref()[..8]);
        u64::from_le_bytes(first)
    }

    /// Reads the secret from a file that only its owner may read.
    pub fn read(path: &Path) -> Result<Secret> {
        let shown = path.display().to_string();
        crate::certs::check_secret(path, "cluster secret")?;
        let bytes = std::fs::read(path).map_err(|e| Error::io("read", &shown, e))?;
        Secret::new(&bytes)
    }

    /// Draws a secret and writes it to a file that must not exist.
    pub fn create(path: &Path) -> Result<Secret> {
        let bytes: [u8; NEW_SECRET_BYTES] = random()?;
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .and_then(|mut f| f.write_all(&bytes).and_then(|()| f.sync_all()))
            .map_err(|e| Error::io("create", path.display(), e))?;
        Secret::new(&bytes)
    }
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N]>
where
    [u8; N]: rand::RandomlyConstructable,
{
    rand::generate(&rand::SystemRandom::new())
        .map(|r| r.expose())
        .map_err(|_| Error::Config("the system gives no random numbers".to_string()))
}

/// The first message of either side.
#[derive(Clone, Copy)]
pub(crate) struct Greeting {
    pub version: u16,
    pub nonce: [u8; 32],
}

impl Greeting {
    pub fn draw() -> Result<Greeting> {
        Ok(Greeting {
            version: crate::frame::VERSION,
            nonce: random()?,
        })
    }
    pub fn encode(&self) -> [u8; GREETING_BYTES] {
        let mut b = [0; GREETING_BYTES];
        b[..4].copy_from_slice(&MAGIC.to_le_bytes());
        b[4..6].copy_from_slice(&self.version.to_le_bytes());
        b[8..].copy_from_slice(&self.nonce);
        b
    }
    pub fn decode(b: &[u8; GREETING_BYTES], whom: &str) -> Result<Greeting> {
        if b[..4] != MAGIC.to_le_bytes() || b[6..8] != [0, 0] {
            return Err(Error::Stranger {
                whom: whom.to_string(),
            });
        }
        let version = u16::from_le_bytes([b[4], b[5]]);
        if version != crate::frame::VERSION {
            return Err(Error::Version {
                whom: whom.to_string(),
                version,
                ours: crate::frame::VERSION,
            });
        }
        let mut nonce = [0; 32];
        nonce.copy_from_slice(&b[8..]);
        Ok(Greeting { version, nonce })
    }
}

/// What the acceptor says to a connector that has proved itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Welcome = 0,
    OtherDatabase = 1,
    OtherIncarnation = 2,
    NotForMe = 3,
    UnknownInstance = 4,
    OtherLaneCount = 5,
    Outlived = 6,
    Stopping = 7,
    Cut = 8,
}

impl Verdict {
    pub fn why(self) -> &'static str {
        match self {
            Verdict::Welcome => "welcome",
            Verdict::OtherDatabase => "it serves another database",
            Verdict::OtherIncarnation => "it serves another incarnation of the database",
            Verdict::NotForMe => "it is another instance than the one asked for",
            Verdict::UnknownInstance => "this instance is not in its list of addresses",
            Verdict::OtherLaneCount => {
                "it runs another number of LMS; the parameter must be the same everywhere"
            }
            Verdict::Outlived => "it knows a later incarnation of this instance",
            Verdict::Stopping => "it is stopping",
            Verdict::Cut => "an injected fault keeps it away",
        }
    }
    fn from(n: u8) -> Option<Verdict> {
        use Verdict::*;
        [
            Welcome,
            OtherDatabase,
            OtherIncarnation,
            NotForMe,
            UnknownInstance,
            OtherLaneCount,
            Outlived,
            Stopping,
            Cut,
        ]
        .into_iter()
        .find(|v| *v as u8 == n)
    }
}

/// The identity of one side of a connection, and what it wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub cluster: Cluster,
    pub member: Member,
    /// The instance that the sender believes to talk to.
    pub to: InstanceId,
    pub lane: Lane,
    pub lms: u8,
    pub verdict: Verdict,
}

impl Identity {
    pub fn encode(&self) -> [u8; IDENTITY_BYTES] {
        let mut b = [0; IDENTITY_BYTES];
        b[..8].copy_from_slice(&self.cluster.database.to_le_bytes());
        b[8..12].copy_from_slice(&self.cluster.incarnation.to_le_bytes());
        b[12..16].copy_from_slice(&self.member.incarnation.to_le_bytes());
        b[16..18].copy_from_slice(&self.member.instance.0.to_le_bytes());
        b[18..20].copy_from_slice(&self.to.0.to_le_bytes());
        b[20] = self.lane.0;
        b[21] = self.lms;
        b[22] = self.verdict as u8;
        b
    }

    /// Decodes an identity from bytes whose proof was right.
    pub fn decode(b: &[u8; IDENTITY_BYTES]) -> Option<Identity> {
        let u16_at = |at| u16::from_le_bytes([b[at], b[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| b[at + i]));
        (b[23] == 0).then_some(())?;
        Some(Identity {
            cluster: Cluster {
                database: u64::from_le_bytes(std::array::from_fn(|i| b[i])),
                incarnation: u32_at(8),
            },
            member: Member {
                incarnation: u32_at(12),
                instance: InstanceId(u16_at(16)),
            },
            to: InstanceId(u16_at(18)),
            lane: Lane(b[20]),
            lms: b[21],
            verdict: Verdict::from(b[22])?,
        })
    }
}

/// What both sides of one connection have in common when proofs are made.
pub(crate) struct Transcript<'a> {
    pub connector: Greeting,
    pub acceptor: Greeting,
    /// The exporter of the TLS session; empty without TLS.
    pub exporter: &'a [u8],
}

#[derive(Clone, Copy)]
pub(crate) enum Side {
    Connector,
    Acceptor,
}

impl Transcript<'_> {
    /// The bytes under a proof. `identities` has the connector's, and in the acceptor's proof the
    /// acceptor's behind it.
    fn message(&self, side: Side, identities: &[[u8; IDENTITY_BYTES]]) -> Vec<u8> {
        let mut m = Vec::with_capacity(256);
        m.extend_from_slice(match side {
            Side::Connector => b"braid interconnect, connector\0",
            Side::Acceptor => b"braid interconnect, acceptor\0\0",
        });
        m.extend(self.connector.version.to_le_bytes());
        m.extend(self.connector.nonce);
        m.extend(self.acceptor.nonce);
        m.extend((self.exporter.len() as u32).to_le_bytes());
        m.extend(self.exporter);
        identities.iter().for_each(|i| m.extend(i));
        m
    }

    pub fn prove(
        &self,
        secret: &Secret,
        side: Side,
        identities: &[[u8; IDENTITY_BYTES]],
    ) -> [u8; PROOF_BYTES] {
        let tag = hmac::sign(&secret.0, &self.message(side, identities));
        let mut proof = [0; PROOF_BYTES];
        proof.copy_from_slice(tag.as_ref());
        proof
    }

    /// Whether a proof is right. The comparison takes constant time.
    pub fn is_proved(
        &self,
        secret: &Secret,
        side: Side,
        identities: &[[u8; IDENTITY_BYTES]],
        proof: &[u8; PROOF_BYTES],
    ) -> bool {
        hmac::verify(&secret.0, &self.message(side, identities), proof).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn identity() -> Identity {
        Identity {
            cluster: Cluster {
                database: 7,
                incarnation: 1,
            },
            member: Member {
                instance: InstanceId(2),
                incarnation: 5,
            },
            to: InstanceId(1),
            lane: Lane::lms(0),
            lms: 2,
            verdict: Verdict::Welcome,
        }
    }

    #[test]
    fn a_proof_holds_for_its_side_session_and_secret_only() {
        let secret = Secret::new(&[1; 32]).unwrap();
        let t = Transcript {
            connector: Greeting::draw().unwrap(),
            acceptor: Greeting::draw().unwrap(),
            exporter: &[],
        };
        let who = [identity().encode()];
        let proof = t.prove(&secret, Side::Connector, &who);
        assert!(t.is_proved(&secret, Side::Connector, &who, &proof));
        assert!(
            !t.is_proved(&secret, Side::Acceptor, &who, &proof),
            "reflected"
        );
        let replayed = Transcript {
            acceptor: Greeting::draw().unwrap(),
            ..t
        };
        assert!(!replayed.is_proved(&secret, Side::Connector, &who, &proof));
        let relayed = Transcript {
            exporter: &[9; 32],
            ..t
        };
        assert!(!relayed.is_proved(&secret, Side::Connector, &who, &proof));
        let mut other = identity();
        other.member.incarnation += 1;
        assert!(!t.is_proved(&secret, Side::Connector, &[other.encode()], &proof));
        let wrong = Secret::new(&[2; 32]).unwrap();
        assert!(!t.is_proved(&wrong, Side::Connector, &who, &proof));
    }

    #[test]
    fn identities_are_pinned_and_read_back() {
        let b = identity().encode();
        let pinned = [
            7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 2, 0, 1, 0, 1, 2, 0, 0,
        ];
        assert_eq!(b, pinned);
        assert_eq!(Identity::decode(&b), Some(identity()));
        for (at, value) in [(22, 99), (23, 1)] {
            let mut bad = b;
            bad[at] = value;
            assert_eq!(Identity::decode(&bad), None);
        }
    }

    #[test]
    fn a_secret_file_is_private() {
        let path = std::env::temp_dir().join(format!("braid-secret-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Secret::create(&path).unwrap();
        Secret::read(&path).unwrap();
        assert!(Secret::create(&path).is_err(), "never overwritten");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Secret::read(&path).unwrap_err().to_string().contains("600"));
        std::fs::remove_file(&path).unwrap();
        assert!(Secret::new(b"short").is_err());
    }
}
