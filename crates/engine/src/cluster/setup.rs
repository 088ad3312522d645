//! What an instance needs to be one of several.

use super::members::{Kinds, Layer};
use crate::{Error, Result};
use block::{InstanceId, LastGroups};
use interconnect::memory::SharedMemory;
use interconnect::{Bound, PeerAddress, Secret};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use storage::lease::FenceCommand;
use wait::priority::Priority;

/// The words that mark a stand-in in the text of a contact.
const STAND_IN: &str = " stand-in";

/// When an instance that does not answer is ended, and how, if its guard does not do it.
#[derive(Clone, Debug)]
pub struct Eviction {
    pub misscount: Duration,
    pub fence: Option<FenceCommand>,
}

impl Default for Eviction {
    fn default() -> Eviction {
        Eviction {
            misscount: Duration::from_secs(30),
            fence: None,
        }
    }
}

/// Where and how an instance meets the others.
pub struct ClusterHost {
    /// The bound address on which it listens for the others. The address goes into the control
    /// file.
    pub bound: Bound,
    pub secret: Secret,
    /// Addresses to use instead of those in the control file.
    pub peers: Vec<PeerAddress>,
    /// Lanes for blocks to each peer; the same on every instance.
    pub lms: u8,
    pub heartbeat: Duration,
    pub priority: Priority,
    pub cpus: Vec<usize>,
    /// Directory of certificates. It is needed unless all instances are on this machine.
    pub certificates: Option<PathBuf>,
    /// Whether this instance may live the next life of an instance that died and does not come back
    /// ([`super::heir`]).
    pub stands_in: bool,
    /// Memory in which instances on one machine announce their commits. `None`: they announce them
    /// by messages.
    pub memory: Option<Arc<dyn SharedMemory>>,
    /// What this instance does with members that do not answer.
    pub eviction: Eviction,
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
            certificates: None,
            stands_in: true,
            memory: Some(Arc::new(interconnect::memory::Process)),
            eviction: Eviction::default(),
            layers: Vec::new(),
        }
    }
}

/// What the control file says about how to meet a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Contact {
    pub address: SocketAddr,
    /// A fingerprint that tells the cluster's secret from another without giving it away. An
    /// instance with another secret must not become a member, for nobody could connect to it.
    pub key: u64,
    /// Tells the host's network from another's. Two instances meet on loopback only within one
    /// network.
    pub network: u64,
    /// Whether this is a stand-in: another instance lives this one's life until its transactions
    /// are rolled back.
    pub stand_in: bool,
}

impl Contact {
    pub fn of(host: &ClusterHost, database: u64, stand_in: bool) -> Contact {
        Contact {
            address: host.bound.address(),
            key: host.secret.fingerprint(database),
            network: network_of_this_host(),
            stand_in,
        }
    }

    pub fn to_text(self) -> String {
        let role = match self.stand_in {
            true => STAND_IN,
            false => "",
        };
        let Contact {
            address,
            key,
            network,
            ..
        } = self;
        format!("{address} key {key:016x} network {network:016x}{role}")
    }

    pub fn parse(text: &str) -> Result<Contact> {
        let parsed = text.split_once(" key ").and_then(|(address, key)| {
            let stand_in = key.ends_with(STAND_IN);
            let key = key.strip_suffix(STAND_IN).unwrap_or(key);
            let (key, network) = key.split_once(" network ")?;
            Some(Contact {
                address: address.parse().ok()?,
                key: u64::from_str_radix(key, 16).ok()?,
                network: u64::from_str_radix(network, 16).ok()?,
                stand_in,
            })
        });
        parsed.ok_or_else(|| {
            Error::Corrupt(format!(
                "the control file has \"{text}\" where a member's address should be"
            ))
        })
    }
}

impl Contact {
    /// The reason why two instances cannot meet at these addresses; none if nothing is known
    /// against it.
    pub fn cannot_meet(&self, other: &Contact) -> Option<&'static str> {
        let loopback = [self, other].map(|c| c.address.ip().is_loopback());
        match loopback {
            [true, true] if self.network != other.network => {
                Some(", on another host: both need an interconnect_address that the other reaches")
            }
            [true, true] | [false, false] => None,
            [true, false] => {
                Some(", which is not on loopback: this instance needs an interconnect_address, too")
            }
            [false, true] => {
                Some(", which is on loopback only: it needs an interconnect_address, too")
            }
        }
    }
}

/// A number for the boot of the machine's system and for the network that this process has there.
/// What cannot be read counts as equal on all hosts; then the connections show who is reached.
fn network_of_this_host() -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let network = std::fs::read_link("/proc/self/ns/net").ok();
    let mut hasher = DefaultHasher::new();
    (boot, network).hash(&mut hasher);
    hasher.finish()
}

/// The evidence that stands in front of every message: the group commits that its content may rest
/// on.
pub trait Evidence: Send + Sync {
    fn header_into(&self, out: &mut Vec<u8>);
    /// Takes in the header at the front of `bytes`, sent in `epoch`, before anything else of the
    /// message is looked at. Returns the header's length. An error means that the bytes are not of
    /// this protocol; the connection is then closed.
    fn header_arrived(
        &self,
        from: InstanceId,
        epoch: u64,
        bytes: &[u8],
    ) -> std::result::Result<usize, String>;
    /// The newest groups of an instance's thread that this instance has heard of, and when they
    /// took effect. The instance may be this one itself.
    fn last_groups_of(&self, instance: InstanceId) -> LastGroups;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_reach_each_other_are_met() {
        let contact = |address: &str, network| Contact {
            address: address.parse().unwrap(),
            key: 1,
            network,
            stand_in: false,
        };
        let (here, there) = (contact("127.0.0.1:1", 1), contact("127.0.0.1:2", 2));
        let (out, far) = (contact("192.0.2.1:1", 1), contact("192.0.2.2:1", 2));
        assert_eq!(here.cannot_meet(&contact("127.0.0.2:3", 1)), None);
        assert_eq!(out.cannot_meet(&far), None);
        for (a, b) in [(here, there), (here, far), (here, out), (far, here)] {
            assert!(a.cannot_meet(&b).is_some(), "{a:?} {b:?}");
        }
    }

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
            "127.0.0.1:1 key 1",
            "x key 1 network 2",
            "127.0.0.1:1 key g network 2",
        ] {
            assert!(Contact::parse(text).is_err(), "{text}");
        }
    }
}
