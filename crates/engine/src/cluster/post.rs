//! Sending to an instance by its number. The message goes to the life of that instance that is a
//! member.

use super::state::Cluster;
use block::InstanceId;
use interconnect::memory::SharedMemory;
use interconnect::{Body, Lane, Member, Message, Parcel, Post, Route};
use std::cell::RefCell;
use std::sync::{Arc, Weak};

thread_local! {
    /// Evidence and body of the message that this thread sends. The buffer is kept and filled
    /// again.
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The way by which the layers send. The cluster holds the layers, so they do not hold the cluster.
struct Sender {
    me: InstanceId,
    cluster: Weak<Cluster>,
}

impl Sender {
    fn new(cluster: &Arc<Cluster>) -> Sender {
        Sender {
            me: cluster.me.instance,
            cluster: Arc::downgrade(cluster),
        }
    }
}

impl Post for Sender {
    fn me(&self) -> InstanceId {
        self.me
    }

    fn send(&self, to: InstanceId, parcel: Parcel<'_>) {
        let Some(cluster) = self.cluster.upgrade() else {
            return;
        };
        // An instance that is no member gets nothing: what was meant for it has lost its purpose.
        if let Some(member) = cluster.life_of(to) {
            cluster.send_to(member, parcel);
        }
    }

    fn memory(&self) -> Option<Arc<dyn SharedMemory>> {
        self.cluster.upgrade()?.memory.clone()
    }
}

impl Cluster {
    /// The way by which the engine's own parts, and tests, send.
    pub fn post(self: &Arc<Self>) -> Arc<dyn Post> {
        Arc::new(Sender::new(self))
    }

    pub(super) fn send_to(&self, to: Member, parcel: Parcel<'_>) {
        let Some(interconnect) = self.interconnect.get() else {
            return;
        };
        let lane = match parcel.route {
            Route::Control => Lane::CONTROL,
            Route::Hash(hash) => interconnect.lane_of(hash),
        };
        // Taking the evidence may send a message of its own: the buffer is not borrowed meanwhile.
        let mut bytes = BYTES.with(RefCell::take);
        bytes.clear();
        self.evidence.header_into(&mut bytes);
        bytes.extend_from_slice(parcel.body);
        let body = Body {
            message: &bytes,
            block: parcel.block.map_or(&[], |b| &b.0[..]),
        };
        let message = Message::one_way(parcel.kind, parcel.epoch, 0);
        // The peer is not connected, or the connection has just broken. That counts as a message
        // lost on the way. The layers make it good when they are told of the reconnection, and on
        // their timers.
        let _ = interconnect.send(to, lane, &message, body);
        BYTES.with(|b| b.replace(bytes));
    }
}
