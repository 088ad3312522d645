//! Starts and ends this instance's part among the others.

use super::heirs::{Heirs, StandIn};
use super::members::{Kinds, Layer, Layers, Members};
use super::service::{LiftedClock, Receiver};
use super::setup::{ClusterHost, Evidence};
use super::state::{Cluster, State};
use crate::bulletin::Bulletins;
use crate::files::Places;
use crate::inquiry::Inquiries;
use crate::sequences::Sequences;
use crate::{Config, Error, Result};
use cache::Cache;
use interconnect::certs::TlsFiles;
use interconnect::{Interconnect, Member};
use redo::Clock;
use seam::{Condvar, Mutex, RwLock};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use storage::lease::ClusterFile;
use storage::{ControlFile, Fatal};

/// The parts that a cluster is made of.
pub(crate) struct ClusterParts {
    pub me: Member,
    pub host: ClusterHost,
    pub layers: Vec<(Kinds, Arc<dyn Layer>)>,
    pub inquiries: Arc<Inquiries>,
    pub bulletins: Arc<Bulletins>,
    pub sequences: Arc<Sequences>,
    pub evidence: Arc<dyn Evidence>,
    pub file: Arc<ClusterFile>,
    pub control: Arc<ControlFile>,
    pub places: Places,
    pub cache: Arc<Cache>,
    pub clock: Arc<Clock>,
    pub fatal: Fatal,
    /// The configuration from which this instance makes those of its stand-ins.
    pub config: Config,
    /// The function by which it stands in for others.
    pub stands_in_by: StandIn,
}

impl Cluster {
    /// Starts the interconnect and the thread `rcfg`. The member record is in the control file
    /// already.
    pub(crate) fn start(parts: ClusterParts) -> Result<Arc<Cluster>> {
        let host = parts.host;
        let heirs = Heirs::new(parts.config, &host, parts.stands_in_by);
        let database = parts.control.get();
        let mut config = interconnect::Config::new(
            interconnect::Cluster {
                database: database.database_id,
                incarnation: database.incarnation,
            },
            parts.me,
            host.secret,
        );
        config.lms = host.lms;
        config.heartbeat = host.heartbeat;
        config.priority = host.priority;
        config.cpus = host.cpus;
        config.tls = host
            .certificates
            .map(|dir| TlsFiles::in_directory(&dir, parts.me.instance));
        let fatal = parts.fatal.clone();
        config.fatal = Arc::new(move |why| fatal(why));
        let cluster = Arc::new(Cluster {
            me: parts.me,
            address: host.bound.address(),
            layers: Layers::new(parts.layers.into_iter().chain(host.layers).collect()),
            space: Mutex::new(None),
            inquiries: parts.inquiries,
            bulletins: parts.bulletins,
            sequences: parts.sequences,
            evidence: parts.evidence,
            file: parts.file,
            control: parts.control,
            places: parts.places,
            cache: parts.cache,
            clock: parts.clock,
            fatal: parts.fatal,
            peers: host
                .peers
                .iter()
                .map(|p| (p.instance.0, p.address))
                .collect(),
            interconnect: OnceLock::new(),
            members: RwLock::new(Arc::new(Members {
                epoch: 0,
                up: vec![parts.me],
                dead: Vec::new(),
                in_limbo: Vec::new(),
            })),
            state: Mutex::new(State {
                rung: true,
                ..State::default()
            }),
            changed: Condvar::new(),
            rcfg: Mutex::new(None),
            readers: Mutex::default(),
            heirs,
            eviction: host.eviction,
            memory: host.memory,
            orders: OnceLock::new(),
            fencing: AtomicBool::new(false),
        });
        let told = Arc::downgrade(&cluster);
        cluster.cache.on_threads_closed(Box::new(move |epoch, _| {
            if let Some(cluster) = told.upgrade() {
                cluster.blocks_recovered(epoch);
            }
        }));
        let service = Arc::new(Receiver::new(&cluster));
        let clock = Arc::new(LiftedClock::new(&cluster));
        cluster.layers.join(&cluster.post())?;
        let interconnect = Interconnect::start(config, host.bound, service, clock)
            .map_err(|e| Error::Cluster(e.to_string()))?;
        assert!(
            cluster.interconnect.set(interconnect).is_ok(),
            "invariant: a cluster is started once"
        );
        let of_thread = cluster.clone();
        let started = wait::thread::spawn_named("rcfg", move || of_thread.reconfigurations());
        match started {
            Ok(thread) => *cluster.rcfg.lock() = Some(thread),
            Err(source) => {
                cluster.stop();
                return Err(Error::Thread {
                    name: "rcfg",
                    source,
                });
            }
        }
        Ok(cluster)
    }

    /// Ends threads and connections without asking the others.
    pub(crate) fn stop(&self) {
        if std::mem::replace(&mut self.state.lock().stopping, true) {
            return;
        }
        self.changed.notify_all();
        if let Some(thread) = self.rcfg.lock().take()
            && thread.join().is_err()
        {
            (self.fatal)("thread rcfg broke an invariant");
        }
        self.heirs.end();
        for reader in self.readers.lock().drain(..) {
            if reader.join().is_err() {
                (self.fatal)("thread rcvr broke an invariant");
            }
        }
        if let Some(interconnect) = self.interconnect.get() {
            interconnect.stop();
        }
        self.layers.stopped();
    }
}
