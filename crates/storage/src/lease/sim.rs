//! Byte locks and clients of the simulated storage. A *client* is what a file server sees of a host
//! or process: its openings of files die together.

use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// One opening of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct OpenId(u64);

/// The fate of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// Killed: the client does nothing any more.
    Killed,
    /// Given up by its server: the client's locks are gone, and its calls fail.
    Revoked,
    /// Dying: the client's next write is its last, and stays in flight while the client is gone
    /// already.
    DiesWriting,
}

/// A write of a killed client that the device has not done yet.
struct InFlight {
    file: String,
    offset: u64,
    data: Vec<u8>,
}

#[derive(Default)]
pub(crate) struct SimLocks {
    last: u64,
    clients: BTreeMap<u64, u32>,
    held: BTreeMap<(String, u64), OpenId>,
    fates: BTreeMap<u32, Fate>,
    in_flight: BTreeMap<u32, InFlight>,
}

impl SimLocks {
    pub fn open(&mut self, client: u32) -> OpenId {
        self.last += 1;
        self.clients.insert(self.last, client);
        OpenId(self.last)
    }

    /// Closes an opening. If its client was killed and a write of the client is in flight, the
    /// opening stays open until that write is over.
    pub fn close(&mut self, open: OpenId) {
        let Some(client) = self.clients.get(&open.0) else {
            return;
        };
        if !self.in_flight.contains_key(client) {
            self.clients.remove(&open.0);
            self.held.retain(|_, holder| *holder != open);
        }
    }

    /// Fails every call of a client that is no more.
    pub fn check(&self, client: u32, what: &'static str, file: &str) -> Result<()> {
        match self.fates.get(&client) {
            Some(Fate::Killed) => Err(Error::Crashed),
            Some(Fate::Revoked) => Err(Error::io(
                what,
                file,
                0,
                std::io::Error::from_raw_os_error(libc::EIO),
            )),
            _ => Ok(()),
        }
    }

    pub fn try_lock(&mut self, open: OpenId, file: &str, byte: u64) -> bool {
        *self.held.entry((file.to_string(), byte)).or_insert(open) == open
    }

    pub fn unlock(&mut self, open: OpenId, file: &str, byte: u64) {
        let key = (file.to_string(), byte);
        if self.held.get(&key) == Some(&open) {
            self.held.remove(&key);
        }
    }

    pub fn held_by_other(&self, open: OpenId, file: &str, byte: u64) -> bool {
        let holder = self.held.get(&(file.to_string(), byte));
        holder.is_some_and(|h| *h != open)
    }

    fn drop_locks(&mut self, client: u32) {
        let of_client: BTreeSet<OpenId> = self
            .clients
            .iter()
            .filter(|(_, c)| **c == client)
            .map(|(&id, _)| OpenId(id))
            .collect();
        self.held.retain(|_, holder| !of_client.contains(holder));
    }

    pub fn kill(&mut self, client: u32) {
        self.fates.insert(client, Fate::Killed);
        if !self.in_flight.contains_key(&client) {
            self.drop_locks(client);
        }
    }

    pub fn revoke(&mut self, client: u32) {
        self.fates.insert(client, Fate::Revoked);
        self.drop_locks(client);
    }

    pub fn lose(&mut self, file: &str, byte: u64) -> bool {
        self.held.remove(&(file.to_string(), byte)).is_some()
    }

    pub fn die_writing(&mut self, client: u32) {
        self.fates.insert(client, Fate::DiesWriting);
    }

    /// Whether this write of the client is the one that stays in flight. If so, the client is dead
    /// from then on.
    pub fn stays_in_flight(&mut self, client: u32, file: &str, offset: u64, data: &[u8]) -> bool {
        if self.fates.get(&client) != Some(&Fate::DiesWriting) {
            return false;
        }
        self.fates.insert(client, Fate::Killed);
        let write = InFlight {
            file: file.to_string(),
            offset,
            data: data.to_vec(),
        };
        self.in_flight.insert(client, write);
        true
    }

    /// Ends the client's last write in the device, which the caller now makes. Then the client's
    /// locks are free.
    pub fn settle(&mut self, client: u32) -> Option<(String, u64, Vec<u8>)> {
        let w = self.in_flight.remove(&client)?;
        self.drop_locks(client);
        Some((w.file, w.offset, w.data))
    }
}
