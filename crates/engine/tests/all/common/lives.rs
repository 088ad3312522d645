//! Instances of one process over one simulated storage that can be killed. A killed instance is cut
//! off from the others and from the storage. Its threads wait for ever, or fail, and are left
//! behind.

use super::*;
use engine::cluster::ClusterHost;
use interconnect::{Bound, Secret};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longer than anything here takes on a loaded machine. Only a failing test waits for so long.
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
            // Each instance behaves as if it were on a machine of its own: the test cuts
            // connections, and that decides who hears what.
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
    /// Ends the instance as `kill -9` does: what it is doing is never finished. (What it does as a
    /// stand-in for another is finished: the stand-in's connections are not known here.)
    pub fn kill(self, s: &SimStorage) {
        self.killed.store(true, Ordering::SeqCst);
        let cluster = self.engine.cluster().unwrap();
        cluster.interconnect().unwrap().stop();
        s.kill_client(self.client);
        std::mem::forget(self.engine);
    }
}
