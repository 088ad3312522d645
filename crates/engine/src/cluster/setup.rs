//! What an instance needs to be one of several.

use super::Layer;
use crate::{Error, Result};
use block::{InstanceId, Scn};
use interconnect::certs::TlsFiles;
use interconnect::{Bound, PeerAddress, Secret};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use wait::priority::Priority;

/// Kinds of messages.
pub type Kinds = RangeInclusive<u16>;

/// In the text of a contact.
const STAND_IN: &str = " stand-in";

/// Where and how an instance meets the others.
pub struct ClusterHost {
    /// Where it listens for them; its address goes into the control file.
    pub bound: Bound,
    pub secret: Secret,
    /// Addresses to use rather than those in the control file.
    pub peers: Vec<PeerAddress>,
    /// Lanes for blocks to each peer; the same everywhere.
    pub lms: u8,
    pub heartbeat: Duration,
    pub priority: Priority,
    pub cpus: Vec<usize>,
    /// Needed unless all instances are on this machine.
    pub tls: Option<TlsFiles>,
    /// Whether this instance may live the next life of one that died and does not come back ([`super::heir`]).
    pub stands_in: bool,
    /// What is done with members that do not answer.
    pub eviction: super::Eviction,
    /// Further protocols beside the engine's own.
    pub layers: Vec<(Kinds, Arc<dyn Layer>)>,
}

impl ClusterHost {
    pub fn new(bound: Bound, secret: Secret) -> ClusterHost {
        ClusterHost {
            bound,
            secret,
            peers: Vec::new(),
            lms: 1,
            heartbeat: Duration::from_millis(100),
            priority: Priority::default(),
            cpus: Vec::new(),
            tls: None,
            stands_in: true,
            eviction: super::Eviction::default(),
            layers: Vec::new(),
        }
    }
}

/// What the control file says of how a member is met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Contact {
    pub address: SocketAddr,
    /// Tells the cluster's secret from another without giving it away: who has another must not become a member, for nobody could be connected to it.
    pub key: u64,
    /// Another instance lives this one's life, until its transactions are rolled back.
    pub stand_in: bool,
}

impl Contact {
    pub fn of(host: &ClusterHost, database: u64, stand_in: bool) -> Contact {
        Contact {
            address: host.bound.address(),
            key: host.secret.fingerprint(database),
            stand_in,
        }
    }

    pub fn to_text(self) -> String {
        let role = match self.stand_in {
            true => STAND_IN,
            false => "",
        };
        format!("{} key {:016x}{role}", self.address, self.key)
    }

    pub fn parse(text: &str) -> Result<Contact> {
        let parsed = text.split_once(" key ").and_then(|(address, key)| {
            let stand_in = key.ends_with(STAND_IN);
            let key = key.strip_suffix(STAND_IN).unwrap_or(key);
            Some(Contact {
                address: address.parse().ok()?,
                key: u64::from_str_radix(key, 16).ok()?,
                stand_in,
            })
        });
        parsed.ok_or_else(|| {
            Error::Corrupt(format!(
                "the control file has no address of a member in \"{text}\""
            ))
        })
    }
}

/// What stands in front of every message: the evidence about group commits that its content may rest on.
pub trait Evidence: Send + Sync {
    fn header_into(&self, out: &mut Vec<u8>);
    /// Takes in the header at the front of `bytes`, before anything else of the message is looked at; returns its length. An error: these are no bytes of ours; the connection is closed.
    fn header_arrived(&self, from: InstanceId, bytes: &[u8]) -> std::result::Result<usize, String>;
    /// The newest group of an instance's thread that this one has heard of: its batch, and when it took effect.
    fn newest_group_of(&self, instance: InstanceId) -> Option<(u64, Scn)>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contacts_are_read_back_and_nothing_else_is() {
        let bound = Bound::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = bound.address();
        let secret = Secret::new(b"a secret of this test").unwrap();
        let host = ClusterHost::new(bound, secret.clone());
        for stand_in in [false, true] {
            let contact = Contact::of(&host, 7, stand_in);
            assert_eq!(Contact::parse(&contact.to_text()).unwrap(), contact);
            assert_eq!(contact.address, address);
        }
        let contact = Contact::of(&host, 7, false);
        let others = [
            secret.fingerprint(8),
            Secret::new(b"another one, as long").unwrap().fingerprint(7),
        ];
        assert!(!others.contains(&contact.key));
        for text in [
            "",
            "127.0.0.1:1",
            "127.0.0.1:1 key ",
            "x key 1",
            "127.0.0.1:1 key g",
        ] {
            assert!(Contact::parse(text).is_err(), "{text}");
        }
    }
}
