//! Instances of one process over one simulated storage, which can be killed: cut off from the
//! others and from the storage, their threads wait for ever, or fail, and are left behind.

use super::*;
use engine::cluster::ClusterHost;
use interconnect::{Bound, Secret};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longer than any of this takes on a loaded machine: only a failing test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Node {
    pub engine: Arc<Engine>,
    client: u32,
    pub killed: Arc<AtomicBool>,
}

pub fn start(s: &SimStorage, k: u16, client: u32) -> Node {
    start_with(s, k, client, false)
}

pub fn start_with(s: &SimStorage, k: u16, client: u32, stands_in: bool) -> Node {
    start_telling(s, k, client, stands_in, &Quiet)
}

pub fn start_telling(
    s: &SimStorage,
    k: u16,
    client: u32,
    stands_in: bool,
    progress: &dyn Progress,
) -> Node {
    let killed: Arc<AtomicBool> = Arc::default();
    let of_host = killed.clone();
    let storage: Arc<dyn Storage> = Arc::new(s.as_client(client));
    let bound = Bound::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let host = Host {
        members: vec![storage.clone()],
        storage,
        fatal: Arc::new(move |why| {
            assert!(of_host.load(Ordering::SeqCst), "instance {k} ends: {why}");
        }),
        cluster: Some(ClusterHost {
            heartbeat: Duration::from_millis(20),
            lms: 3,
            stands_in,
            // As if each were on a machine of its own: who hears what is decided by cutting
            // connections.
            memory: None,
            ..ClusterHost::new(bound, Secret::new(b"the secret of this test").unwrap())
        }),
    };
    let config = Config {
        instance: k,
        join_others: true,
        buffer_bytes: 512 * 8192,
        ..config()
    };
    let engine = Engine::open_on(config, host, progress).unwrap();
    Node {
        engine,
        client,
        killed,
    }
}

impl Node {
    /// As `kill -9` does. What it is doing is never finished. (Not what it does as a stand-in for
    /// another: that one's connections are not known here.)
    pub fn kill(self, s: &SimStorage) {
        self.killed.store(true, Ordering::SeqCst);
        let cluster = self.engine.cluster().unwrap();
        cluster.interconnect().unwrap().stop();
        s.kill_client(self.client);
        std::mem::forget(self.engine);
    }
}
