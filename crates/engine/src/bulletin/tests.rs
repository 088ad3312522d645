//! Instances in one thread over channels that lose and repeat messages.

use super::*;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

type Wire = (InstanceId, InstanceId, u16, Vec<u8>);

/// What is on its way, in order.
#[derive(Clone, Default)]
struct Net(Arc<Mutex<VecDeque<Wire>>>);

struct Node {
    me: InstanceId,
    net: Net,
}

impl Post for Node {
    fn me(&self) -> InstanceId {
        self.me
    }
    fn send(&self, to: InstanceId, parcel: Parcel<'_>) {
        let message = (self.me, to, parcel.kind, parcel.body.to_vec());
        self.net.0.lock().push_back(message);
    }
}

fn members(up: &[(u16, u32)]) -> Members {
    let member = |(instance, incarnation): &(u16, u32)| interconnect::Member {
        instance: InstanceId(*instance),
        incarnation: *incarnation,
    };
    Members {
        epoch: 1,
        up: up.iter().map(member).collect(),
        dead: Vec::new(),
        in_limbo: Vec::new(),
    }
}

struct Instance {
    bulletins: Arc<Bulletins>,
    heard: Arc<Mutex<Vec<String>>>,
    /// Whether its hearer has no room.
    full: Arc<AtomicBool>,
}

fn instance(k: u16, life: u32, net: &Net) -> Instance {
    let bulletins = Bulletins::new(life);
    let post = Node {
        me: InstanceId(k),
        net: net.clone(),
    };
    bulletins.join(Arc::new(post)).unwrap();
    let (heard, full): (Arc<Mutex<Vec<String>>>, Arc<AtomicBool>) = Default::default();
    let (into, no_room) = (heard.clone(), full.clone());
    bulletins.hear_with(Box::new(move |bytes| {
        let room = !no_room.load(Relaxed);
        if room {
            into.lock().push(String::from_utf8(bytes.to_vec()).unwrap());
        }
        room
    }));
    Instance {
        bulletins,
        heard,
        full,
    }
}

impl Instance {
    fn tell(&self, texts: impl Iterator<Item = u32>) {
        texts.for_each(|n| self.bulletins.tell(&Arc::from(n.to_string().as_bytes())));
    }
    fn is_done(&self) -> bool {
        self.bulletins
            .ways
            .lock()
            .values()
            .all(|w| w.kept.is_empty())
    }
}

/// Delivers what is on its way, and what that brings about. `luck` says how often each message
/// arrives.
fn deliver(net: &Net, nodes: &[&Instance], luck: impl Fn() -> usize) {
    loop {
        let Some((from, to, kind, body)) = net.0.lock().pop_front() else {
            return;
        };
        let node = nodes
            .iter()
            .find(|n| n.bulletins.post.get().unwrap().me() == to);
        for _ in 0..luck() {
            if let Some(node) = node {
                node.bulletins.message(from, 0, kind, &body, None).unwrap();
            }
        }
    }
}

fn texts(of: std::ops::Range<u32>) -> Vec<String> {
    of.map(|n| n.to_string()).collect()
}

#[test]
fn each_is_heard_once_and_in_order_by_all() {
    let net = Net::default();
    let nodes = [1, 2, 3].map(|k| instance(k, 1, &net));
    let up = members(&[(1, 1), (2, 1), (3, 1)]);
    nodes
        .iter()
        .for_each(|n| n.bulletins.members_changed(&up).unwrap());
    nodes[0].tell(0..100);
    deliver(&net, &nodes.each_ref(), || 1);
    assert_eq!(*nodes[1].heard.lock(), texts(0..100));
    assert_eq!(*nodes[2].heard.lock(), texts(0..100));
    assert!(nodes[0].heard.lock().is_empty(), "nobody tells itself");
    assert!(nodes[0].is_done());
}

#[test]
fn what_is_lost_or_repeated_on_the_way_is_made_good() {
    for seed in 0..50u64 {
        let net = Net::default();
        let nodes = [1, 2].map(|k| instance(k, 1, &net));
        let up = members(&[(1, 1), (2, 1)]);
        nodes
            .iter()
            .for_each(|n| n.bulletins.members_changed(&up).unwrap());
        let random = AtomicU64::new(seed);
        let luck = || {
            let n = random.load(Relaxed).wrapping_mul(6_364_136_223_846_793_005);
            let n = n.wrapping_add(1_442_695_040_888_963_407);
            random.store(n, Relaxed);
            [0, 1, 1, 2][(n >> 60) as usize % 4]
        };
        for part in 0..10 {
            nodes[0].tell(part * 10..part * 10 + 10);
            deliver(&net, &nodes.each_ref(), luck);
            match part % 2 {
                0 => nodes[0].bulletins.tick(),
                _ => nodes[0].bulletins.reconnected(InstanceId(2)),
            }
        }
        let ticks = RefCell::new(0);
        while !nodes[0].is_done() {
            *ticks.borrow_mut() += 1;
            assert!(*ticks.borrow() < 10_000, "seed {seed}");
            nodes[0].bulletins.tick();
            deliver(&net, &nodes.each_ref(), luck);
        }
        assert_eq!(*nodes[1].heard.lock(), texts(0..100), "seed {seed}");
    }
}

#[test]
fn an_instance_without_room_is_told_again_later() {
    let net = Net::default();
    let nodes = [1, 2].map(|k| instance(k, 1, &net));
    let up = members(&[(1, 1), (2, 1)]);
    nodes
        .iter()
        .for_each(|n| n.bulletins.members_changed(&up).unwrap());
    nodes[1].full.store(true, Relaxed);
    nodes[0].tell(0..3);
    deliver(&net, &nodes.each_ref(), || 1);
    assert!(nodes[1].heard.lock().is_empty() && !nodes[0].is_done());
    assert!(nodes[0].bulletins.fullness() > 0.0);
    nodes[1].full.store(false, Relaxed);
    nodes[0].bulletins.tick();
    deliver(&net, &nodes.each_ref(), || 1);
    assert_eq!(*nodes[1].heard.lock(), texts(0..3));
    assert!(nodes[0].is_done() && nodes[0].bulletins.fullness() == 0.0);
}

#[test]
fn what_was_told_before_is_not_for_the_next_life() {
    let net = Net::default();
    let one = instance(1, 1, &net);
    let two = instance(2, 1, &net);
    let up = members(&[(1, 1), (2, 1)]);
    for n in [&one, &two] {
        n.bulletins.members_changed(&up).unwrap();
    }
    one.tell(0..2);
    // The first life of instance 2 hears nothing of it, and the second begins with what comes.
    net.0.lock().clear();
    let two = instance(2, 2, &net);
    let up = members(&[(1, 1), (2, 2)]);
    for n in [&one, &two] {
        n.bulletins.members_changed(&up).unwrap();
    }
    one.tell(2..4);
    deliver(&net, &[&one, &two], || 1);
    assert_eq!(*two.heard.lock(), texts(2..4));
    // The next life of instance 1 counts from one again, before instance 2 hears of the epoch.
    let one = instance(1, 2, &net);
    let up = members(&[(1, 2), (2, 2)]);
    one.bulletins.members_changed(&up).unwrap();
    one.tell(4..6);
    deliver(&net, &[&one, &two], || 1);
    assert_eq!(*two.heard.lock(), texts(2..6));
}

#[test]
fn no_more_is_on_its_way_than_the_window() {
    let net = Net::default();
    let nodes = [1, 2].map(|k| instance(k, 1, &net));
    let up = members(&[(1, 1), (2, 1)]);
    nodes
        .iter()
        .for_each(|n| n.bulletins.members_changed(&up).unwrap());
    let long: Arc<[u8]> = Arc::from("x".repeat(BULLETIN_MAX_BYTES).as_bytes());
    let count = 2 * WINDOW_BYTES / BULLETIN_MAX_BYTES;
    (0..count).for_each(|_| nodes[0].bulletins.tell(&long));
    assert_eq!(net.0.lock().len(), count / 2);
    deliver(&net, &nodes.each_ref(), || 1);
    assert_eq!(nodes[1].heard.lock().len(), count);
    assert!(nodes[0].is_done());
}
