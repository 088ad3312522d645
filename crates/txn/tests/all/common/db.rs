//! Several instances of transactions over one network in memory.

use super::net::Net;
use super::{Instance, create_for};
use block::InstanceId;
use std::sync::Arc;
use std::thread;
use storage::ControlFile;
use txn::{Departed, TxnManager};

pub const CAP: u32 = 4096;

/// The seed of the network. `BRAID_TXN_SEED` replays one.
pub fn seed() -> u64 {
    testkit::seeds::seed("BRAID_TXN_SEED")
}

pub struct Db {
    pub net: Arc<Net>,
    pub nodes: Vec<Instance>,
}

impl Db {
    /// `n` instances, all up and at rest.
    pub fn new(n: u16) -> Db {
        Db::over(Net::new(), n)
    }

    pub fn over(net: Arc<Net>, n: u16) -> Db {
        let storage = create_for(n);
        let control = Arc::new(ControlFile::open(&storage).unwrap());
        let ids: Vec<InstanceId> = (1..=n).map(InstanceId).collect();
        let open = |k| {
            Instance::open_member(&storage, control.clone(), k, CAP, |m| {
                net.connect(m);
                m.members_changed(0, &ids, Departed::default()).unwrap();
            })
            .unwrap()
        };
        let nodes: Vec<Instance> = (1..=n).map(open).collect();
        for node in &nodes {
            node.manager
                .members_changed(1, &ids, Departed::default())
                .unwrap();
            load(node);
        }
        let db = Db { net, nodes };
        db.net.run(1, || {
            db.nodes.iter().for_each(|n| n.manager.tick());
            db.settle();
        });
        db
    }

    pub fn node(&self, k: usize) -> &Instance {
        &self.nodes[k - 1]
    }
    pub fn manager(&self, k: usize) -> &Arc<TxnManager> {
        &self.node(k).manager
    }
    pub fn settle(&self) {
        while !self.net.is_quiet() {
            thread::yield_now();
        }
    }
    pub fn stop(self) {
        self.net.heal();
        self.net
            .clone()
            .run(2, || self.nodes.into_iter().for_each(Instance::stop));
    }
}

/// A block of accounts that only this instance uses.
pub fn load(i: &Instance) {
    i.load_block(u32::from(i.number) - 1, 100).unwrap();
}
