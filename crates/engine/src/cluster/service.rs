//! Receiving: what the threads of the interconnect hand to the layers.

use super::epochs::EPOCH;
use super::state::Cluster;
use super::suspicion::Suspicion;
use block::{BLOCK_SIZE, BlockBuf, InstanceId, Scn};
use interconnect::{
    Arrival, Block, Evidence, Header, Interconnect, Landing, LinkChange, Member, Service,
};
use seam::Mutex;
use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

const TICK_INTERVAL: Duration = Duration::from_secs(1);

thread_local! {
    /// Memory for the next block that arrives on this thread's connection.
    static SPARE: RefCell<Option<Box<BlockBuf>>> = const { RefCell::new(None) };
}

/// Receives the messages of members. The interconnect holds this, and the cluster holds the
/// interconnect.
pub(super) struct Receiver {
    cluster: Weak<Cluster>,
    ticked: Mutex<Instant>,
}

impl Receiver {
    pub fn new(cluster: &Arc<Cluster>) -> Receiver {
        Receiver {
            cluster: Arc::downgrade(cluster),
            ticked: Mutex::new(seam::now()),
        }
    }
}

impl Service for Receiver {
    fn handle(&self, interconnect: &Interconnect, arrival: &Arrival<'_>, block: Block<'_>) {
        let Some(cluster) = self.cluster.upgrade() else {
            return;
        };
        let (landed, whole) = landed(block);
        let result = match whole {
            true => cluster.arrived(arrival, landed.as_deref()),
            false => Err("a block that is not one".to_string()),
        };
        if let Some(block) = landed {
            SPARE.with(|spare| spare.replace(Some(block)));
        }
        if let Err(why) = result {
            tracing::error!(
                "a message of kind {} from {} cannot be understood: {why}; its connections are closed",
                arrival.header.kind,
                arrival.from
            );
            // The connections are gone already if the sender is no peer any more.
            let _ = interconnect.drop_connections(arrival.from.instance);
        }
    }

    fn landing(&self, _: Member, header: &Header) -> Option<Box<dyn Landing>> {
        if header.block_bytes as usize != BLOCK_SIZE {
            return None;
        }
        let spare = SPARE.with(RefCell::take).unwrap_or_else(BlockBuf::zeroed);
        Some(Box::new(spare))
    }

    fn link_changed(&self, interconnect: &Interconnect, change: LinkChange) {
        let Some(cluster) = self.cluster.upgrade() else {
            return;
        };
        match change {
            LinkChange::Up(member, _)
                if interconnect.connected(member.instance) == Some(member) =>
            {
                let entered = {
                    let mut state = cluster.state.lock();
                    state.broken.remove(&member.instance.0);
                    // `rcfg` may have waited for this connection to enter an epoch.
                    state.rung |= state.met.contains(&member);
                    state.entered
                };
                cluster.changed.notify_all();
                cluster.say_epoch(member, entered);
                cluster.layers.each(|l| l.reconnected(member.instance));
            }
            LinkChange::Up(..) => {}
            LinkChange::Down(member, ..) => cluster.suspect(member.instance),
        }
    }

    fn tick(&self, _: &Interconnect, evidence: &[Evidence]) {
        let Some(cluster) = self.cluster.upgrade() else {
            return;
        };
        cluster.take_evidence(evidence);
        let due = {
            let mut ticked = self.ticked.lock();
            let due = seam::elapsed(*ticked) >= TICK_INTERVAL;
            if due {
                *ticked = seam::now();
            }
            due
        };
        let members = cluster.members();
        if due && !(members.is_alone() && members.dead.is_empty()) {
            cluster.layers.each(|l| l.tick());
        }
    }
}

/// The block of a message, in this instance's own memory; false if the message has a block of
/// another size.
fn landed(block: Block<'_>) -> (Option<Box<BlockBuf>>, bool) {
    match block {
        Block::None => (None, true),
        Block::Landed(landing) => match landing.into_any().downcast::<Box<BlockBuf>>() {
            Ok(block) => (Some(*block), true),
            Err(_) => (None, false),
        },
        Block::Here(_) | Block::Owned(_) => (None, false),
    }
}

impl Cluster {
    fn arrived(&self, arrival: &Arrival<'_>, block: Option<&BlockBuf>) -> Result<(), String> {
        let (from, kind) = (arrival.from, arrival.header.kind);
        let epoch = arrival.header.epoch;
        let used = self
            .evidence
            .header_arrived(from.instance, epoch, arrival.message)?;
        let body = arrival
            .message
            .get(used..)
            .ok_or_else(|| format!("its header takes {used} bytes, more than there are"))?;
        if kind == EPOCH {
            self.hear_of_groups(body).map_err(|why| why.to_string())?;
            self.heard_epoch(from, epoch);
            return Ok(());
        }
        match self.layers.of_kind(kind) {
            Some(layer) => layer.message(from.instance, epoch, kind, body, block),
            None => Err("no layer has messages of this kind".to_string()),
        }
    }
}

/// The clock as the interconnect knows it. It is told of an SCN before anything that came with that
/// SCN.
pub(super) struct LiftedClock {
    cluster: Weak<Cluster>,
    clock: Arc<redo::Clock>,
}

impl LiftedClock {
    pub fn new(cluster: &Arc<Cluster>) -> LiftedClock {
        LiftedClock {
            cluster: Arc::downgrade(cluster),
            clock: cluster.clock.clone(),
        }
    }
}

impl interconnect::Clock for LiftedClock {
    fn now(&self) -> Scn {
        self.clock.now()
    }
    fn lift(&self, to: Scn) -> Result<(), String> {
        match self.cluster.upgrade() {
            Some(cluster) => cluster.lift(to),
            None => Err("this instance has stopped".to_string()),
        }
    }
}

impl Cluster {
    /// A connection broke. A process that was killed breaks all of its connections.
    fn suspect(&self, peer: InstanceId) {
        let mut state = self.state.lock();
        state.broken.insert(peer.0, seam::now());
        state.rung = true;
        drop(state);
        self.changed.notify_all();
    }

    /// Counts how often each peer was found silent or not connected. `rcfg` looks into it when that
    /// has gone on for a while.
    fn take_evidence(&self, evidence: &[Evidence]) {
        let mut state = self.state.lock();
        let now = seam::now();
        let is_peer = |k: &u16| evidence.iter().any(|e| e.instance == InstanceId(*k));
        state.suspicion.retain(|k, _| is_peer(k));
        for e in evidence {
            let is_odd = e.silent_looks > 0 || e.lanes_connected < e.lanes;
            let suspicion = state.suspicion.entry(e.instance.0).or_default();
            suspicion.looked(is_odd, now);
        }
        let worth_a_look = state.suspicion.values().any(Suspicion::is_silent);
        if worth_a_look && !state.rung {
            state.rung = true;
            drop(state);
            self.changed.notify_all();
        }
    }
}
