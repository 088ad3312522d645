//! One life of an instance: a process that opens the database and lets clients work. It stops when
//! it is told to, or is killed.

use super::mix::Mix;
use super::shared::{Shared, Stage, pause, say};
use super::work::{self, Schema};
use crate::common::{self, Quiet, Rng};
use engine::cluster::{ClusterHost, Eviction};
use engine::{Affinity, Config, Engine, Host};
use interconnect::{Bound, Secret};
use seam::sim::{self, Process};
use std::sync::Arc;
use std::time::Duration;
use storage::Storage;

/// What is needed to start an instance.
#[derive(Clone)]
pub struct Start {
    pub shared: Arc<Shared>,
    pub schema: Arc<Schema>,
    pub mix: Arc<Mix>,
    pub instance: u16,
    pub process: Process,
    pub seed: u64,
    /// Whether the instance's former life was killed.
    pub is_again: bool,
}

/// Starts the process. From then on the book has its life.
pub fn start(s: Start) {
    say(&format!("process {} is instance {}", s.process, s.instance));
    s.shared.set_stage(s.process, Stage::Opening);
    sim::start_in(s.process, "instance", move || live(&s));
}

/// Kills a process, which releases its locks.
pub fn kill(shared: &Shared, process: Process) {
    shared.set_stage(process, Stage::Killed);
    shared.storage().kill_client(process);
    sim::kill(process);
}

/// Whether it is right that an instance ends itself.
fn may_end(shared: &Shared, process: Process, why: &str) -> bool {
    if why.contains("has ordered the end of this instance") {
        shared.met("ended itself as ordered");
        return true;
    }
    let doomed = shared.is_doomed(process);
    if doomed {
        shared.met("ended itself for an error of its device");
    }
    doomed
}

/// How long a member without a guard is waited for: for ever.
const FOR_EVER: Duration = Duration::from_secs(3600);

pub fn host(shared: &Arc<Shared>, process: Process, misscount: Option<Duration>) -> Host {
    let storage: Arc<dyn Storage> = Arc::new(shared.storage().as_client(process));
    let address = "127.0.0.1:0".parse().expect("an address");
    let bound = Bound::bind(address).expect("the simulated network has ports");
    let secret = Secret::new(b"the secret of all simulations").expect("it is long enough");
    let of_fatal = shared.clone();
    Host {
        members: vec![storage.clone()],
        storage,
        // A real instance ends here, and so does this one.
        fatal: Arc::new(move |why| {
            say(&format!("process {process} ends itself: {why}"));
            if !may_end(&of_fatal, process, why) {
                of_fatal.fail(format!("process {process} ended itself: {why}"));
            }
            kill(&of_fatal, process);
        }),
        cluster: Some(ClusterHost {
            heartbeat: Duration::from_millis(20),
            eviction: Eviction {
                misscount: misscount.unwrap_or(FOR_EVER),
                fence: None,
            },
            ..ClusterHost::new(bound, secret)
        }),
    }
}

fn live(s: &Start) {
    let mut rng = Rng(s.seed);
    let config = Config {
        instance: s.instance,
        join_others: true,
        // The policy moves masters, too, beside what clients do (`work`).
        affinity: Affinity {
            window: Duration::from_millis(500),
            minimum: 4,
            percent: 60,
        },
        buffer_bytes: s.mix.frames * 8192,
        ..common::config()
    };
    let mut host = host(&s.shared, s.process, s.mix.misscount);
    if let Some(cluster) = &mut host.cluster {
        cluster.memory = s.shared.memory_of(s.instance);
    }
    match Engine::open_on(config, host, &Quiet) {
        Ok(engine) => serve(s, &engine, &mut rng),
        Err(e) => {
            s.shared.met(&format!("refused to open: {}", e.sqlstate()));
            s.shared.set_stage(s.process, Stage::Refused(e.to_string()));
        }
    }
    // The process ends, and everything that it left open is closed.
    s.shared.storage().kill_client(s.process);
    sim::kill(s.process);
}

fn serve(s: &Start, engine: &Arc<Engine>, rng: &mut Rng) {
    s.shared.set_stage(s.process, Stage::Open);
    if s.is_again {
        s.shared.met("opened again after a death");
    }
    let peers: Arc<work::Peers> = Arc::default();
    let clients: Vec<_> = (0..s.mix.clients)
        .map(|_| {
            let (engine, s, seed) = (engine.clone(), s.clone(), rng.next());
            let peers = peers.clone();
            seam::thread::spawn(move || work::client(&engine, &s, &peers, seed))
        })
        .collect();
    for client in clients {
        if client.join().is_err() {
            s.shared
                .fail(format!("a client of process {} has panicked", s.process));
        }
    }
    while s.shared.stage(s.process) != Stage::Stopping {
        pause(Duration::from_millis(1));
    }
    match engine.stop(&Quiet) {
        Ok(()) => s.shared.set_stage(s.process, Stage::Stopped),
        // A real instance that cannot stop cleanly is left as if it had been killed. So is this
        // one.
        Err(_) if s.shared.is_doomed(s.process) => s.shared.set_stage(s.process, Stage::Killed),
        Err(e) => s
            .shared
            .fail(format!("process {} cannot stop: {e}", s.process)),
    }
}
