//! One life of an instance: a process that opens the database, lets clients work, and stops when it is told to, or is killed.

use crate::common::{self, Quiet, Rng};
use crate::draws::Sequences;
use crate::shared::{Shared, Stage, pause, say};
use crate::work;
use engine::cluster::{ClusterHost, Eviction};
use engine::{Affinity, Config, Engine, Host, TableDef};
use interconnect::{Bound, Secret};
use seam::sim::{self, Process};
use std::sync::Arc;
use std::time::Duration;
use storage::Storage;

/// How an instance is started.
#[derive(Clone)]
pub struct Start {
    pub shared: Arc<Shared>,
    pub table: Arc<TableDef>,
    pub sequences: Sequences,
    pub wide: Arc<TableDef>,
    pub instance: u16,
    pub process: Process,
    pub seed: u64,
    pub clients: u64,
}

/// Starts the process; its life is in the book from then on.
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

pub fn host(shared: &Arc<Shared>, process: Process) -> Host {
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
            of_fatal.fail(format!("process {process} ended itself: {why}"));
            kill(&of_fatal, process);
        }),
        cluster: Some(ClusterHost {
            heartbeat: Duration::from_millis(20),
            // Nobody guards instances here: who is silent is waited for.
            eviction: Eviction {
                misscount: Duration::from_secs(3600),
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
        // Also the policy moves masters, beside what clients do (`work`).
        affinity: Affinity {
            window: Duration::from_millis(500),
            minimum: 4,
            percent: 60,
        },
        ..common::config()
    };
    let mut host = host(&s.shared, s.process);
    if let Some(cluster) = &mut host.cluster {
        cluster.memory = s.shared.memory_of(s.instance);
    }
    match Engine::open_on(config, host, &Quiet) {
        Ok(engine) => serve(s, &engine, &mut rng),
        Err(e) => s.shared.set_stage(s.process, Stage::Refused(e.to_string())),
    }
    // The process ends, and what it left open is closed.
    s.shared.storage().kill_client(s.process);
    sim::kill(s.process);
}

fn serve(s: &Start, engine: &Arc<Engine>, rng: &mut Rng) {
    s.shared.set_stage(s.process, Stage::Open);
    let clients: Vec<_> = (0..s.clients)
        .map(|_| {
            let (engine, s, seed) = (engine.clone(), s.clone(), rng.next());
            seam::thread::spawn(move || work::client(&engine, &s, seed))
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
        Err(e) => s
            .shared
            .fail(format!("process {} cannot stop: {e}", s.process)),
    }
}
